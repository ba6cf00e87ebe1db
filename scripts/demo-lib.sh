# What the demos share: a throwaway PostgreSQL server, and how commands and headings are shown. Sourced, with root set to the
# checkout. The demo defines stop_ours, which ends what it started itself.

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
server=''
stop() { # SIGNAL PID: end a process of ours and wait for it
  if [ -n "$2" ] && kill -0 "$2" 2>/dev/null; then
    kill -s "$1" "$2" 2>/dev/null || true
    wait "$2" 2>/dev/null || true
  fi
}
clean_up() {
  local code=$?
  trap - EXIT INT TERM
  stop_ours
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

sql() { psql -X -q -v ON_ERROR_STOP=1 "$@"; }

export PATH=$root/bin:$PATH XDG_STATE_HOME=$work/state XDG_CONFIG_HOME=$work/config
command -v synctl >/dev/null || die 'there is no bin/synctl: run make build'
command -v psql >/dev/null || die 'there is no psql: run make setup, or install the PostgreSQL client'
