package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"synctl/internal/fault"
	"synctl/internal/pg"
	"synctl/internal/record"
	"synctl/internal/sink"
	"synctl/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// bench is a target with shards that are fed by hand.
type bench struct {
	t      *testing.T
	dsn    string
	conn   *pgx.Conn
	target *Target
	shards map[string]*Shard
	seq    int
	lsn    int
}

func newBench(t *testing.T, ddl string, o Options) *bench {
	t.Helper()
	b := &bench{t: t, dsn: testkit.Shared(t).Database(t), shards: map[string]*Shard{}, lsn: 0x1000}
	b.conn = testkit.Connect(t, b.dsn)
	testkit.Exec(t, b.conn, ddl)
	b.open(o)
	t.Cleanup(b.close)
	return b
}

func (b *bench) open(o Options) {
	b.t.Helper()
	o.DSN, o.Stream, o.Log = pg.DSN(b.dsn), "s", slog.New(slog.DiscardHandler)
	var err error
	if b.target, err = Open(context.Background(), o); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) close() {
	if b.target == nil {
		return
	}
	for _, s := range b.shards {
		s.Close()
	}
	b.shards = map[string]*Shard{}
	b.target.Close(context.Background())
	b.target = nil
}

// restart is what a kill and a new start come to, as far as the database sees it.
func (b *bench) restart(o Options) {
	b.t.Helper()
	b.close()
	b.open(o)
}

func (b *bench) shard(id string, parents ...string) *Shard {
	b.t.Helper()
	if s := b.shards[id]; s != nil {
		return s
	}
	b.target.Expect(id)
	s, err := b.target.Shard(context.Background(), id, parents)
	if err != nil {
		b.t.Fatal(err)
	}
	b.shards[id] = s
	return s
}

// change makes a line; each has a commit of its own. suffix is d or i for halves of a key update.
func (b *bench) change(op, table, suffix, fields string) string {
	b.lsn += 0x10
	moved := ""
	if suffix == "d" || suffix == "i" {
		moved = `,"moved":true`
	}
	names := fmt.Sprintf(`"schema":"public","table":%q,`, table)
	if op == "truncate" {
		names = ""
	}
	return fmt.Sprintf(`{"v":1,"id":"7.1.%016X.0%s","op":%q,%s%s%s,"lsn":"0/%X","row_lsn":"0/%X","xid":1,"committed_at":"2026-11-30T19:58:00.123456Z","floor":"0/100"}`,
		b.lsn, suffix, op, names, fields, moved, b.lsn+8, b.lsn)
}

func (b *bench) insert(table, row string) string {
	key, _, _ := strings.Cut(row, ",")
	return b.change("insert", table, "", fmt.Sprintf(`"key":{%s},"after":{%s}`, key, row))
}

func (b *bench) update(table, row string) string {
	key, _, _ := strings.Cut(row, ",")
	return b.change("update", table, "", fmt.Sprintf(`"key":{%s},"after":{%s}`, key, row))
}

func (b *bench) delete(table, key string) string {
	return b.change("delete", table, "", fmt.Sprintf(`"key":{%s},"before":{%s}`, key, key))
}

// send gives lines to a shard as one batch, each a stream record of its own, without waiting.
func (b *bench) send(shard string, lines ...string) <-chan error {
	b.t.Helper()
	batch := record.NewBatch(1<<20, nil, nil)
	for _, l := range lines {
		b.seq++
		r := batch.Add()
		if err := record.Parse(batch.Copy([]byte(l)), r); err != nil {
			b.t.Fatalf("%v: %s", err, l)
		}
		r.Stream = &record.StreamInfo{Name: "s", Shard: shard, Sequence: fmt.Sprint(b.seq)}
		batch.Token = sink.Mark{Sequence: fmt.Sprint(b.seq)}
	}
	done := make(chan error, 1)
	if err := b.shard(shard).Write(context.Background(), batch, func(err error) { done <- err }); err != nil {
		b.t.Fatal(err)
	}
	return done
}

func (b *bench) apply(shard string, lines ...string) error {
	b.t.Helper()
	return <-b.send(shard, lines...)
}

func (b *bench) must(shard string, lines ...string) {
	b.t.Helper()
	if err := b.apply(shard, lines...); err != nil {
		b.t.Fatalf("%v\nnext: %s", err, fault.HintOf(err))
	}
}

func (b *bench) settle() error {
	var list []*Shard
	for _, s := range b.shards {
		list = append(list, s)
	}
	return Settle(context.Background(), list)
}

// want compares a table's rows, as text and in order.
func (b *bench) want(query, want string) {
	b.t.Helper()
	rows, err := b.conn.Query(context.Background(), "SELECT q::text FROM ("+query+") q ORDER BY 1")
	if err != nil {
		b.t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.t.Fatal(err)
	}
	if g := strings.Join(got, " "); g != want {
		b.t.Errorf("%s: %s, want %s", query, g, want)
	}
}

// fails checks that an error is of a class and names what it must.
func fails(t *testing.T, err error, class fault.Class, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if fault.ClassOf(err) != class {
		t.Errorf("class %d, want %d: %v", fault.ClassOf(err), class, err)
	}
	if fault.HintOf(err) == "" {
		t.Errorf("no next step: %v", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q is not in: %v", w, err)
		}
	}
}

const twoColumns = "CREATE TABLE t (id int PRIMARY KEY, note text)"

func TestChangesOfOneKeyInOneBatch(t *testing.T) {
	b := newBench(t, twoColumns, Options{})
	b.must("a",
		b.insert("t", `"id":1,"note":"one"`), b.update("t", `"id":1,"note":"two"`), b.delete("t", `"id":1`), b.insert("t", `"id":1,"note":"three"`),
		b.insert("t", `"id":2,"note":"x"`), b.delete("t", `"id":2`),
		b.insert("t", `"id":3,"note":null`), b.update("t", `"id":3,"note":"a"`), b.update("t", `"id":3,"note":"b"`))
	b.want("TABLE t", "(1,three) (3,b)")
	if s := b.target.Stats(); s.Applied != 9 || s.Duplicates != 0 {
		t.Errorf("%+v", s)
	}
}

func TestDuplicatesAreDropped(t *testing.T) {
	b := newBench(t, twoColumns, Options{})
	lines := []string{b.insert("t", `"id":1,"note":"one"`), b.update("t", `"id":1,"note":"two"`), b.delete("t", `"id":1`)}
	b.must("a", lines...)
	b.must("a", lines...) // known by id
	b.restart(Options{})
	mark, reread, exists := b.shard("a").Start()
	if !exists || mark.Sequence != "6" || reread != "1" {
		t.Fatalf("checkpoint at %v, re-read from %q", mark, reread)
	}
	// The stream is read again from there: ids are learned, nothing is applied.
	b.seq = 0
	b.must("a", append(lines, lines...)...)
	b.must("a", lines...) // new stream records with the same ids
	b.want("TABLE t", "")
	if s := b.target.Stats(); s.Applied != 0 || s.Duplicates != 3 {
		t.Errorf("%+v", s)
	}
	// A floor covers what is at or below it, without ids.
	high := strings.Replace(b.insert("t", `"id":5,"note":"x"`), `"floor":"0/100"`, `"floor":"0/1038"`, 1)
	b.must("a", high)
	b.must("a", lines...)
	b.want("TABLE t", "(5,x)")
}

func TestKilledBeforeRereadIsDone(t *testing.T) {
	b := newBench(t, twoColumns, Options{})
	first := b.insert("t", `"id":1,"note":"one"`)
	b.must("a", first)
	b.must("a", b.insert("t", `"id":2,"note":"two"`))
	for range 2 {
		// Each start moves nothing and must not forget from where to read again.
		b.restart(Options{})
		if err := b.shard("a").Finish(context.Background(), sink.Mark{Sequence: "3"}); err != nil {
			t.Fatal(err)
		}
		b.restart(Options{})
		if _, reread, _ := b.shard("a").Start(); reread != "1" {
			t.Fatalf("re-read from %q, want 1", reread)
		}
	}
}

func TestIDsOfRecordsWithoutFloorAreKept(t *testing.T) {
	b := newBench(t, twoColumns, Options{})
	bare := func(s string) string { return strings.Replace(s, `,"floor":"0/100"`, "", 1) }
	one, two := bare(b.insert("t", `"id":1,"note":"one"`)), bare(b.delete("t", `"id":1`))
	b.must("a", one, one, two)
	b.restart(Options{})
	b.must("a", one, two, two)
	b.want("TABLE t", "")
	b.want("SELECT count(*) FROM synctl.applied", "(2)")
}

func TestChildKnowsWhatItsParentsHad(t *testing.T) {
	b := newBench(t, twoColumns, Options{})
	one, two := b.insert("t", `"id":1,"note":"one"`), b.insert("t", `"id":2,"note":"two"`)
	b.must("p1", one)
	b.must("p2", two)
	for _, p := range []string{"p1", "p2"} {
		if err := b.shard(p).Finish(context.Background(), sink.Mark{Sequence: fmt.Sprint(b.seq), Ended: true}); err != nil {
			t.Fatal(err)
		}
	}
	b.shard("c", "p1", "p2")
	b.must("c", one, two, b.insert("t", `"id":3,"note":"three"`))
	b.want("TABLE t", "(1,one) (2,two) (3,three)")
}

func TestOtherTimelinesDoNotCompare(t *testing.T) {
	b := newBench(t, twoColumns, Options{})
	b.must("a", strings.Replace(b.insert("t", `"id":1,"note":"x"`), `"floor":"0/100"`, `"floor":"0/FFFF"`, 1))
	// After a failover LSNs below the old timeline's floor are new changes.
	b.must("a", strings.Replace(b.insert("t", `"id":2,"note":"y"`), `"id":"7.1.`, `"id":"7.2.`, 1))
	b.must("a", strings.Replace(b.insert("t", `"id":3,"note":"z"`), `"id":"7.1.`, `"id":"8.1.`, 1))
	b.want("TABLE t", "(2,y) (3,z)")
}

func TestUnchangedColumnsStay(t *testing.T) {
	b := newBench(t, "CREATE TABLE t (id int PRIMARY KEY, note text, n int)", Options{})
	b.must("a", b.insert("t", `"id":1,"note":"long","n":1`),
		b.change("update", "t", "", `"key":{"id":1},"after":{"id":1,"n":2},"unchanged":["note"]`),
		b.change("update", "t", "", `"key":{"id":1},"after":{"n":3},"unchanged":["id","note"]`))
	b.want("TABLE t", "(1,long,3)")
}

func TestIdentityGeneratedAndDefaults(t *testing.T) {
	b := newBench(t, `CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED, d int DEFAULT 9)`, Options{})
	b.must("a", b.insert("t", `"id":7,"n":1,"twice":5`), b.insert("t", `"id":8,"n":1,"d":1`))
	b.must("a", b.update("t", `"id":7,"n":4,"twice":0`))
	b.want("TABLE t", "(7,4,8,9) (8,1,2,1)")
}

func TestKeysEqualToTheTypeAndDifferentAsText(t *testing.T) {
	b := newBench(t, "CREATE EXTENSION citext; CREATE TABLE t (id citext PRIMARY KEY, note text)", Options{})
	b.must("a", b.insert("t", `"id":"A","note":"1"`))
	out := b.change("delete", "t", "d", `"key":{"id":"A"},"before":{"id":"A"}`)
	in := b.change("insert", "t", "i", `"key":{"id":"a"},"after":{"id":"a","note":"2"}`)
	// The new key's shard is ahead: its insert replaces the row, and the delete finds nothing.
	b.must("b", in)
	b.want("TABLE t", "(a,2)")
	b.must("a", out)
	b.want("TABLE t", "(a,2)")
	// Plain delete and insert of such keys: the insert waits for the delete.
	del := b.delete("t", `"id":"a"`)
	b.must("a", b.insert("t", `"id":"A","note":"3"`))
	b.want("TABLE t", "(a,2)")
	b.must("b", del)
	if err := b.settle(); err != nil {
		t.Fatal(err)
	}
	b.want("TABLE t", "(A,3)")
}

func TestKeylessTable(t *testing.T) {
	b := newBench(t, "CREATE TABLE t (a int, j json, p point)", Options{})
	row := `"a":1,"j":{"x": 1},"p":"(1,2)"`
	ins := func(r string) string { return b.change("insert", "t", "", `"after":{`+r+`}`) }
	b.must("a", ins(row), ins(row), ins(row), ins(`"a":null,"j":null,"p":null`),
		b.change("delete", "t", "", `"before":{`+row+`}`),
		b.change("update", "t", "", `"before":{`+row+`},"after":{"a":2,"j":{"x": 1},"p":"(1,2)"}`),
		b.change("delete", "t", "", `"before":{"a":null,"j":null,"p":null}`))
	b.want("TABLE t", `(1,"{""x"": 1}","(1,2)") (2,"{""x"": 1}","(1,2)")`)
	err := b.apply("a", b.change("delete", "t", "", `"before":{"a":5,"j":null,"p":null}`))
	fails(t, err, fault.Failed, "public.t", "no such row")
}

func TestMissingRow(t *testing.T) {
	b := newBench(t, twoColumns, Options{})
	err := b.apply("a", b.insert("t", `"id":1,"note":"x"`), b.update("t", `"id":2,"note":"y"`))
	fails(t, err, fault.Failed, `{"id":2}`, "sequence 2", `"public"."t"`, "no such row")
	b.want("TABLE t", "") // nothing of the transaction
	b.restart(Options{IgnoreMissing: true})
	b.seq = 0
	b.must("a", b.insert("t", `"id":1,"note":"x"`), b.update("t", `"id":2,"note":"y"`), b.delete("t", `"id":3`))
	b.want("TABLE t", "(1,x)")
	if s := b.target.Stats(); s.Missing != 2 {
		t.Errorf("%d missing rows counted, want 2", s.Missing)
	}
}

func TestExistingRow(t *testing.T) {
	b := newBench(t, twoColumns+"; INSERT INTO t VALUES (2, 'old')", Options{})
	err := b.apply("a", b.insert("t", `"id":1,"note":"x"`), b.insert("t", `"id":2,"note":"new"`))
	fails(t, err, fault.Failed, `{"id":2}`, "exists", "sequence 2")
	b.restart(Options{OverwriteExisting: true})
	b.seq = 0
	b.must("a", b.insert("t", `"id":1,"note":"x"`), b.insert("t", `"id":2,"note":"new"`))
	b.want("TABLE t", "(1,x) (2,new)")
	// A row of a snapshot never takes a later change's place.
	b.must("a", `{"v":1,"id":"snap.1","op":"read","schema":"public","table":"t","key":{"id":2},"after":{"id":2,"note":"older"}}`,
		`{"v":1,"id":"snap.2","op":"read","schema":"public","table":"t","key":{"id":3},"after":{"id":3,"note":"only"}}`)
	b.want("TABLE t", "(1,x) (2,new) (3,only)")
}

func TestWhatTheTargetLacks(t *testing.T) {
	b := newBench(t, twoColumns, Options{})
	fails(t, b.apply("a", b.insert("nope", `"id":1`)), fault.Failed, "public.nope", "does not exist")
	b.restart(Options{})
	fails(t, b.apply("a", b.insert("t", `"id":1,"note":"x","extra":1`)), fault.Failed, "public.t", `"extra"`)
	b.restart(Options{})
	// A column that is added while we run is found.
	b.must("a", b.insert("t", `"id":1,"note":"x"`))
	testkit.Exec(t, b.conn, "ALTER TABLE t ADD COLUMN extra int")
	b.must("a", b.insert("t", `"id":2,"note":"x","extra":1`))
	b.want("TABLE t", "(1,x,) (2,x,1)")
}

func TestValueThatDoesNotFit(t *testing.T) {
	b := newBench(t, "CREATE TABLE t (id int PRIMARY KEY, n smallint, v varchar(3))", Options{})
	fails(t, b.apply("a", b.insert("t", `"id":1,"n":1,"v":"abc"`), b.insert("t", `"id":2,"n":70000,"v":"a"`)), fault.Failed, `{"id":2}`, "smallint", "sequence 2")
	b.restart(Options{})
	fails(t, b.apply("a", b.insert("t", `"id":3,"n":1,"v":"abcd"`)), fault.Failed, `{"id":3}`, "character varying(3)")
	b.restart(Options{})
	// Also where the value goes as text.
	l := b.change("insert", "t", "", `"key":{"id":4},"after":{"id":4,"n":1,"v":"abcd"},"literal":{"v":"abcd"}`)
	fails(t, b.apply("a", l), fault.Failed, `{"id":4}`, "character varying(3)")
}

func TestTableThatActsByItselfIsWarnedOf(t *testing.T) {
	var log strings.Builder
	b := newBench(t, "CREATE TABLE p (id int PRIMARY KEY); CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p ON DELETE CASCADE); CREATE TABLE bare (id int)", Options{})
	b.target.opts.Log = slog.New(slog.NewTextHandler(&log, nil))
	b.must("a", b.insert("p", `"id":1`), b.insert("c", `"id":1,"p":1`), b.insert("bare", `"id":1`))
	for _, want := range []string{"cascading", "no unique index"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is not in the log: %s", want, log.String())
		}
	}
}

func TestOneConsumerAtATime(t *testing.T) {
	b := newBench(t, twoColumns, Options{})
	_, err := Open(context.Background(), Options{DSN: pg.DSN(b.dsn), Stream: "s"})
	fails(t, err, fault.Unreachable, `"default"`, "in use")
	other, err := Open(context.Background(), Options{DSN: pg.DSN(b.dsn), Stream: "s", Checkpoint: "other"})
	if err != nil {
		t.Fatal(err)
	}
	other.Close(context.Background())
	// One that lost its lock and lives on is fenced by the owner of the row.
	b.must("a", b.insert("t", `"id":1,"note":"x"`))
	testkit.Exec(t, b.conn, "UPDATE synctl.checkpoint SET owner = 1")
	fails(t, b.apply("a", b.insert("t", `"id":2,"note":"x"`)), fault.Unreachable, "taken over")
	b.want("TABLE t", "(1,x)")
}

func TestLostCommitIsNoticed(t *testing.T) {
	b := newBench(t, twoColumns, Options{})
	b.must("a", b.insert("t", `"id":1,"note":"x"`))
	testkit.Exec(t, b.conn, "UPDATE synctl.checkpoint SET sequence = '0'") // as a crash with synchronous_commit off leaves it
	if err := b.apply("a", b.insert("t", `"id":2,"note":"x"`)); !Retryable(err) {
		t.Fatalf("%v, want an error that reopens the shard", err)
	}
}

func TestRoleWithoutRights(t *testing.T) {
	cluster := testkit.Shared(t)
	dsn := cluster.Database(t)
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, "CREATE ROLE weak LOGIN; CREATE TABLE t (id int PRIMARY KEY)")
	t.Cleanup(func() { testkit.Exec(t, conn, "DROP OWNED BY weak; DROP ROLE weak") })
	weak := strings.Replace(dsn, "postgres@", "weak@", 1)
	_, err := Open(context.Background(), Options{DSN: pg.DSN(weak), Stream: "s"})
	fails(t, err, fault.Unreachable, "schema synctl")
	// Nor where somebody else made the schema.
	target, err := Open(context.Background(), Options{DSN: pg.DSN(dsn), Stream: "s"})
	if err != nil {
		t.Fatal(err)
	}
	target.Close(context.Background())
	_, err = Open(context.Background(), Options{DSN: pg.DSN(weak), Stream: "s"})
	fails(t, err, fault.Unreachable, `"weak"`, "schema synctl")
	if hint := fault.HintOf(err); !strings.Contains(hint, `GRANT USAGE ON SCHEMA synctl TO "weak"`) {
		t.Errorf("hint %q", hint)
	}
	testkit.Exec(t, conn, "GRANT USAGE ON SCHEMA synctl TO weak; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA synctl TO weak")
	if target, err = Open(context.Background(), Options{DSN: pg.DSN(weak), Stream: "s"}); err != nil {
		t.Fatal(err)
	}
	target.Close(context.Background())
}
