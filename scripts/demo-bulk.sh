#!/usr/bin/env bash
# A data set of a million rows, loaded and brought live under an application that goes on reading and writing, and taken back
# again. On a throwaway PostgreSQL server, in about half a minute; nothing is left behind.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

application=''
stop_ours() { stop TERM "$application"; }
. scripts/demo-lib.sh

rows=${ROWS:-1000000}
day=2026-11-30
programme=$work/demo-bulk
CGO_ENABLED=0 go build -buildvcs=false -o "$programme" ./scripts/demo-bulk

live() { sql -c "SELECT tableoid::regclass AS partition, count(*) AS orders, min(total), max(total) FROM orders WHERE day = '$day' GROUP BY 1" | sed 's/^/   /;/^ *$/d'; }

heading 'A throwaway PostgreSQL server with a live table, one partition a day'
start_server
sql <<'SQL'
CREATE TABLE orders (day date NOT NULL, id bigint NOT NULL, customer int NOT NULL, total numeric(12,2) NOT NULL,
  status text NOT NULL DEFAULT 'new', placed_at timestamptz NOT NULL, PRIMARY KEY (day, id)) PARTITION BY LIST (day);
CREATE INDEX ON orders (customer);
CREATE INDEX ON orders (placed_at);
CREATE INDEX ON orders (status) WHERE status <> 'sent';
CREATE SEQUENCE order_id;
CREATE TABLE orders_20261129 PARTITION OF orders FOR VALUES IN ('2026-11-29');
CREATE TABLE orders_20261130 PARTITION OF orders FOR VALUES IN ('2026-11-30');
CREATE TABLE orders_default PARTITION OF orders DEFAULT;
INSERT INTO orders SELECT day::date, n, n * 31 % 10007, n % 1000, 'new', day FROM generate_series(1, 200000) n, (VALUES ('2026-11-29'::timestamptz), ('2026-11-30')) d(day);
ANALYZE orders;
SQL
live

heading 'The data set: a better version of that day, as Parquet'
"$programme" data "$work/orders.parquet" "$rows"
note "$(du -h "$work/orders.parquet" | cut -f1) in $work/orders.parquet"

heading 'The application: four connections read, two write, from now on'
"$programme" traffic >"$work/traffic.out" 2>"$work/traffic.log" &
application=$!
sleep 1
kill -0 "$application" 2>/dev/null || { cat "$work/traffic.log" >&2; die 'the application ended'; }

load=(synctl bulk load --from "parquet:$work/orders.parquet" --to postgres:///postgres --table orders --run-id "orders-$day"
  --swap --partition orders_20261130 --min-rows 500000 --check "SELECT min(total) >= 0 FROM orders_staging" --progress none --log-level warn)

heading 'What would be done, the SQL and its locks (some of it)'
note 'the same command with --dry-run | grep'
"${load[@]}" --dry-run | grep -E '^(source|target|copy|CREATE UNLOGGED|COPY|-- [0-9]+\.|-- locks: ACCESS EXCLUSIVE on public)' | cut -c1-150 | sed 's/^/   /'

heading 'Load it, check it, bring it live'
show "${load[@]}"
live

heading 'The same command again: the run has a name, and is done'
show "${load[@]}"
show synctl bulk status --to postgres:///postgres --run-id "orders-$day"

heading 'What was live before is kept, and can come back'
show synctl swap list --to postgres:///postgres
show synctl swap rollback --to postgres:///postgres --table orders --partition orders_20261130 --log-level warn
live

heading 'And the application?'
kill -s TERM "$application"
code=0
wait "$application" || code=$?
application=''
sed 's/^/   /' "$work/traffic.out"
[ $code -eq 0 ] || { cat "$work/traffic.log" >&2; die 'statements of the application failed'; }
grep -q '^0 failed$' "$work/traffic.out" || die 'the application did not say how it went'
printf '   %snobody noticed%s\n' "$green" "$off"
note "(the longest took as long as it did for want of cores: the locks were held for the milliseconds named above)"

printf '\n%sDone in %d s.%s Everything is cleaned up.\n' "$bold" $((SECONDS - began)) "$off"
