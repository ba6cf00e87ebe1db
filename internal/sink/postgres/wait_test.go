package postgres

import (
	"fmt"
	"testing"
	"time"

	"synctl/internal/fault"
)

func TestUniqueConflictWaitsForTheOtherShard(t *testing.T) {
	b := newBench(t, "CREATE TABLE t (id int PRIMARY KEY, email text UNIQUE)", Options{})
	b.must("a", b.insert("t", `"id":1,"email":"x"`))
	freed := b.update("t", `"id":1,"email":"y"`)
	b.must("b", b.insert("t", `"id":9,"email":"z"`), b.insert("t", `"id":2,"email":"x"`))
	b.must("b", b.update("t", `"id":2,"email":"w"`), b.insert("t", `"id":8,"email":"v"`))
	b.want("TABLE t", "(1,x) (8,v) (9,z)") // the shard went on
	fails(t, b.settle(), fault.Failed, `{"id":2}`, "t_email_key", "(email)=(x)")
	b.restart(Options{}) // what waits is in the database
	b.shard("b")
	b.must("a", freed)
	if err := b.settle(); err != nil {
		t.Fatal(err)
	}
	b.want("TABLE t", "(1,y) (2,w) (8,v) (9,z)")
	b.want("SELECT count(*) FROM synctl.held", "(0)")
}

func TestHeldRecordIsTriedWithoutNewOnes(t *testing.T) {
	b := newBench(t, "CREATE TABLE p (id int PRIMARY KEY); CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p)", Options{HoldRetry: 20 * time.Millisecond})
	b.must("a", b.insert("c", `"id":1,"p":5`))
	b.must("b", b.insert("p", `"id":5`))
	deadline := time.Now().Add(10 * time.Second)
	for b.target.Stats().Held > 0 && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	b.want("TABLE c", "(1,5)")
	// A delete of what others still refer to waits, too.
	del := b.delete("p", `"id":5`)
	b.must("b", del)
	b.want("TABLE p", "(5)")
	b.must("a", b.delete("c", `"id":1`))
	if err := b.settle(); err != nil {
		t.Fatal(err)
	}
	b.want("TABLE p", "")
}

func TestHeldInsertThatIsDeletedAgain(t *testing.T) {
	b := newBench(t, "CREATE TABLE t (id int PRIMARY KEY, email text UNIQUE); INSERT INTO t VALUES (1, 'x')", Options{})
	b.must("a", b.insert("t", `"id":2,"email":"x"`))
	b.must("a", b.delete("t", `"id":2`), b.insert("t", `"id":2,"email":"q"`))
	if err := b.settle(); err != nil {
		t.Fatal(err)
	}
	b.want("TABLE t", "(1,x) (2,q)")
}

func TestHoldIsBounded(t *testing.T) {
	b := newBench(t, "CREATE TABLE t (id int PRIMARY KEY, email text UNIQUE); INSERT INTO t VALUES (1, 'x')", Options{HoldBytes: 1000})
	var err error
	for i := 2; i < 20 && err == nil; i++ {
		err = b.apply("a", b.insert("t", fmt.Sprintf(`"id":%d,"email":"x"`, i)))
	}
	fails(t, err, fault.Failed, "1000 bytes", "t_email_key")
	b.restart(Options{HoldTime: time.Millisecond, HoldRetry: time.Millisecond})
	select {
	case err := <-b.shard("a").Broken():
		fails(t, err, fault.Failed, "t_email_key")
	case <-time.After(10 * time.Second):
		t.Fatal("a change may wait for ever")
	}
}

func TestMovedInsertWithoutItsToastedValues(t *testing.T) {
	b := newBench(t, twoColumns, Options{})
	b.must("a", b.change("insert", "t", "i", `"key":{"id":2},"after":{"id":2},"unchanged":["note"]`))
	b.want("TABLE t", "")
	fails(t, b.settle(), fault.Failed, "TOAST")
	b.must("a", b.delete("t", `"id":2`))
	if err := b.settle(); err != nil {
		t.Fatal(err)
	}
	b.want("TABLE t", "")
}

func TestTruncateWaitsForAllShards(t *testing.T) {
	b := newBench(t, twoColumns+"; CREATE TABLE u (id int PRIMARY KEY)", Options{})
	trunc := b.change("truncate", "t", "", `"tables":[{"schema":"public","table":"t"},{"schema":"public","table":"u"}],"cascade":false,"restart_identity":true`)
	b.shard("a")
	b.shard("b")
	b.must("b", b.insert("t", `"id":2,"note":"b"`))
	done := b.send("a", b.insert("t", `"id":1,"note":"a"`), trunc, b.insert("t", `"id":3,"note":"after"`))
	select {
	case err := <-done:
		t.Fatalf("shard a did not wait: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	b.want("TABLE t", "(1,a) (2,b)")
	b.must("b", b.insert("u", `"id":1`), trunc)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	b.want("TABLE t", "(3,after)")
	b.want("TABLE u", "")
	b.must("a", trunc) // delivered once more
	b.want("TABLE t", "(3,after)")
}

func TestTruncateAfterRestartInTheMiddle(t *testing.T) {
	b := newBench(t, twoColumns, Options{})
	trunc := b.change("truncate", "t", "", `"tables":[{"schema":"public","table":"t"}],"cascade":false,"restart_identity":false`)
	b.shard("a")
	b.shard("b")
	a := b.send("a", b.insert("t", `"id":1,"note":"a"`), trunc)
	b.target.Stop()
	if err := <-a; err != ErrStopped {
		t.Fatalf("%v, want ErrStopped", err)
	}
	b.want("TABLE t", "(1,a)")
	b.restart(Options{})
	if mark, _, _ := b.shard("a").Start(); mark.Sequence != "1" {
		t.Fatalf("checkpoint of a at %v, want before the truncate", mark)
	}
	// b ends: what it had before is applied, so a goes on alone. Then b comes to it after a restart.
	b.shard("b")
	b.target.Done("b")
	b.must("a", trunc, b.insert("t", `"id":3,"note":"after"`))
	b.want("TABLE t", "(3,after)")
	b.restart(Options{})
	b.shard("a")
	b.must("b", trunc, b.insert("t", `"id":4,"note":"b"`))
	b.want("TABLE t", "(3,after) (4,b)")
}

func TestTruncateDropsWhatWaits(t *testing.T) {
	b := newBench(t, "CREATE TABLE t (id int PRIMARY KEY, email text UNIQUE); INSERT INTO t VALUES (1, 'x')", Options{})
	b.must("a", b.insert("t", `"id":2,"email":"x"`))
	b.must("a", b.change("truncate", "t", "", `"tables":[{"schema":"public","table":"t"}],"cascade":false,"restart_identity":false`))
	if err := b.settle(); err != nil {
		t.Fatal(err)
	}
	b.want("TABLE t", "")
	b.want("SELECT count(*) FROM synctl.held", "(0)")
}
