#!/usr/bin/env bash
# The tour of synctl in under a minute, on a throwaway PostgreSQL server: a table and a workload, its changes published to a
# stream, the stream replayed into a second database, both compared. Nothing is left behind.
#
#   make demo              the stream is a directory on disk
#   make demo KINESIS=1    the stream is in kinesis-local, an emulator of Amazon Kinesis
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
began=$SECONDS

if [ -t 1 ]; then bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' red=$'\e[31m' off=$'\e[0m'; else bold='' dim='' green='' red='' off=''; fi
heading() { printf '\n%s── %s%s\n' "$bold" "$*" "$off"; }
note() { printf '%s   %s%s\n' "$dim" "$*" "$off"; }
die() { printf '%sdemo: %s%s\n' "$red" "$*" "$off" >&2; exit 1; }

# show prints a command as one would type it, and runs it.
show() {
  printf '%s$%s' "$green" "$off"
  printf ' %s' "${@@Q}" | sed "s/'\([A-Za-z0-9_@%+=:,./*?&-]*\)'/\1/g"
  printf '\n'
  "$@"
}

# ---- what is started here is stopped here, whatever happens
work=$(mktemp -d "${TMPDIR:-/tmp}/synctl-demo-XXXXXX")
server='' publisher='' kinesis=''
stop() { # SIGNAL PID: end a process of ours and wait for it
  if [ -n "$2" ] && kill -0 "$2" 2>/dev/null; then
    kill -s "$1" "$2" 2>/dev/null || true
    wait "$2" 2>/dev/null || true
  fi
}
clean_up() {
  local code=$?
  trap - EXIT INT TERM
  stop TERM "$publisher"
  stop TERM "$kinesis"
  stop QUIT "$server" # at once: nothing of it is kept
  cd / && rm -rf "$work"
  exit $code
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

find_server() {
  local dir
  for dir in "${SYNCTL_TEST_PGBIN:-}" $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -t/ -k5 -n -r) "$(dirname "$(command -v postgres || echo /none/x)")"; do
    if [ -n "$dir" ] && [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ]; then
      printf '%s\n' "$dir"
      return
    fi
  done
  die 'there is no PostgreSQL server: run make setup'
}

# PostgreSQL refuses to run as root.
as_server() {
  if [ "$(id -u)" -ne 0 ]; then exec "$@"; fi
  local user=nobody
  getent passwd postgres >/dev/null && user=postgres
  exec setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups "$@"
}

start_server() {
  local bin data=$work/server
  bin=$(find_server)
  mkdir "$data"
  chmod 711 "$work"
  if [ "$(id -u)" -eq 0 ]; then
    chown "$(getent passwd postgres >/dev/null && echo postgres || echo nobody)" "$data"
  fi
  (cd /; as_server "$bin/initdb" -D "$data/data" -U demo -A trust -E UTF8 --no-locale -N) >"$work/initdb.log" 2>&1 || { cat "$work/initdb.log" >&2; die 'initdb failed'; }
  # On a socket in our own directory: no port to collide with, nobody else can connect.
  (cd /; as_server "$bin/postgres" -D "$data/data" -c wal_level=logical -c fsync=off -c listen_addresses= -c unix_socket_directories="$data") >"$work/server.log" 2>&1 &
  server=$!
  export PGHOST=$data PGUSER=demo PGDATABASE=postgres
  unset PGPORT PGPASSWORD PGSERVICE PGOPTIONS
  for _ in $(seq 200); do
    psql -qAtc 'select 1' >/dev/null 2>&1 && return
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  cat "$work/server.log" >&2
  die 'the PostgreSQL server does not answer'
}

start_kinesis() {
  local port
  port=$(node -e 'const s = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close() })')
  KINESIS_MOCK_CERT_PATH=$root/scripts/kinesis-local/node_modules/kinesis-local/server.json KINESIS_MOCK_PLAIN_PORT=$port \
    KINESIS_MOCK_TLS_PORT=$((port > 60000 ? port - 1 : port + 1)) CREATE_STREAM_DURATION=5ms SHARD_LIMIT=100 LOG_LEVEL=ERROR \
    NODE_OPTIONS="--require $root/scripts/kinesis-local/loopback.cjs" \
    node "$root/scripts/kinesis-local/node_modules/kinesis-local/main.js" >"$work/kinesis.log" 2>&1 &
  kinesis=$!
  for _ in $(seq 150); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then break; fi
    kill -0 "$kinesis" 2>/dev/null || { cat "$work/kinesis.log" >&2; die 'kinesis-local did not start'; }
    sleep 0.1
  done
  export AWS_ACCESS_KEY_ID=demo AWS_SECRET_ACCESS_KEY=demo AWS_REGION=eu-central-1 AWS_EC2_METADATA_DISABLED=true
  stream="kinesis://orders?endpoint=http://127.0.0.1:$port"
}

sql() { psql -X -q -v ON_ERROR_STOP=1 "$@"; }

# The fingerprint of a database's table: rows, and one checksum over every column's text.
fingerprint() {
  sql -At -d "$1" -c "SELECT count(*) || ' rows, md5 ' || md5(string_agg(o::text, E'\n' ORDER BY id)) FROM orders o"
}

workload() {
  sql -d shop <<'SQL'
INSERT INTO orders (customer, total) SELECT 'customer ' || n % 97, round((n * 7919 % 100000) / 100.0, 2) FROM generate_series(1, 3000) n;
DO $$
BEGIN
  FOR n IN 1..800 LOOP
    UPDATE orders SET status = 'paid', note = note || jsonb_build_object('attempt', n) WHERE id = 1 + n * 31 % 3000;
    IF n % 5 = 0 THEN DELETE FROM orders WHERE id = 1 + n * 17 % 3000; END IF;
    IF n % 50 = 0 THEN UPDATE orders SET id = id + 1000000 WHERE id = 1 + n * 13 % 3000; END IF;
    COMMIT;
  END LOOP;
END $$;
BEGIN; INSERT INTO orders (customer, total) VALUES ('rolled back', 1); ROLLBACK;
INSERT INTO orders (customer, total, note) VALUES ('Zoë', 'NaN', '{"big": 12345678901234567890.123456789}');
SQL
}

table='CREATE TABLE orders (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, customer text NOT NULL, total numeric NOT NULL,
  status text NOT NULL DEFAULT '\''new'\'', note jsonb NOT NULL DEFAULT '\''{}'\'', placed_at timestamptz NOT NULL DEFAULT clock_timestamp())'

export PATH=$root/bin:$PATH XDG_STATE_HOME=$work/state XDG_CONFIG_HOME=$work/config
command -v synctl >/dev/null || die 'there is no bin/synctl: run make build'
command -v psql >/dev/null || die 'there is no psql: run make setup, or install the PostgreSQL client'

heading 'A throwaway PostgreSQL server with an empty table'
start_server
sql -c 'CREATE DATABASE shop' -c 'CREATE DATABASE copy'
sql -d shop -c "$table"
sql -d copy -c "$table"
note "databases shop and copy, table orders in both; $(sql -Atc 'SHOW server_version' | sed 's/^/PostgreSQL /')"

if [ "${KINESIS:-}" = 1 ]; then
  heading 'Amazon Kinesis, emulated by kinesis-local'
  start_kinesis
  note "$stream"
else
  stream=file:orders # a directory beside the server's, for the time of the demo
fi
cd "$work"

heading 'Publish every change of the table to a stream of four shards'
note 'in the background, while the workload below runs'
publish=(synctl cdc publish --from postgres:///shop --table public.orders --slot demo --create --to "$stream" --create-stream 4)
printf '%s$%s %s &\n' "$green" "$off" "${publish[*]}"
"${publish[@]}" 2>"$work/publish.log" >"$work/publish.out" &
publisher=$!
for _ in $(seq 150); do
  [ "$(sql -Atc "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'demo' AND active")" = 1 ] && break
  kill -0 "$publisher" 2>/dev/null || { cat "$work/publish.log" >&2; die 'publish ended'; }
  sleep 0.1
done

heading 'The workload: inserts, updates, deletes, key changes, a rollback'
workload
target=$(sql -Atc 'SELECT pg_current_wal_insert_lsn()')
note "committed up to $target; the slot's confirmed position follows, and only ever covers what the stream holds"
for _ in $(seq 300); do
  confirmed=$(sql -Atc "SELECT confirmed_flush_lsn >= '$target' FROM pg_replication_slots WHERE slot_name = 'demo'")
  [ "$confirmed" = t ] && break
  kill -0 "$publisher" 2>/dev/null || { cat "$work/publish.log" >&2; die 'publish ended'; }
  sleep 0.1
done
[ "$confirmed" = t ] || { cat "$work/publish.log" >&2; die "publish did not reach $target"; }
kill -s TERM "$publisher"
code=0
wait "$publisher" || code=$?
publisher=''
[ $code -eq 0 ] || { cat "$work/publish.log" >&2; die "publish ended with $code"; }
note 'SIGTERM: it drained, acknowledged and ended with 0:'
sed -E 's/^time=[^ ]+ level=INFO msg=//; s/^/   /' "$work/publish.out" "$work/publish.log"

heading 'What is in the stream: one JSON object a line'
show synctl replay --from "$stream" --limit 3 --log-level warn --progress none

heading 'Replay it into the second database'
show synctl replay --from "$stream" --to postgres:///copy --checkpoint demo --progress none

heading 'Compare'
shop=$(fingerprint shop)
copy=$(fingerprint copy)
printf '   shop  %s\n   copy  %s\n' "$shop" "$copy"
[ "$shop" = "$copy" ] || die 'the tables differ'
printf '   %sthe same%s\n' "$green" "$off"

heading 'Again: the checkpoint was committed with the data, so nothing is applied twice'
note 'it reads again only what it needs to know duplicates by their ids'
show synctl replay --from "$stream" --to postgres:///copy --checkpoint demo --progress none
[ "$(fingerprint copy)" = "$shop" ] || die 'a second replay changed the table'

heading 'From any place in the stream: a shard and a sequence number'
place=$(synctl replay --from "$stream" --op delete --limit 1 --log-level warn --progress none)
shard=$(sed 's/.*"shard":"\([^"]*\)".*/\1/' <<<"$place")
sequence=$(sed 's/.*"sequence":"\([^"]*\)".*/\1/' <<<"$place")
note "the first delete of a shard is at $sequence in $shard"
show synctl replay --from "$stream" --shard "$shard" --from-sequence "$sequence" --limit 2 --log-level warn --progress none

printf '\n%sDone in %d s.%s Everything is cleaned up.\n' "$bold" $((SECONDS - began)) "$off"
