package postgres

import (
	"testing"

	"synctl/internal/fault"
)

// TestSwallowedInsert: a row that a rule or a trigger keeps out ends the run; one that a trigger puts into a child table is there.
func TestSwallowedInsert(t *testing.T) {
	const nothing = `CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';`
	for name, ddl := range map[string]string{
		"rule":    twoColumns + `; CREATE RULE r AS ON INSERT TO t WHERE new.id = 2 DO INSTEAD NOTHING`,
		"trigger": nothing + twoColumns + `; CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW WHEN (new.id = 2) EXECUTE FUNCTION nothing()`,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, ddl, Options{})
			err := b.apply("a", b.insert("t", `"id":1,"note":"x"`), b.insert("t", `"id":2,"note":"y"`), b.insert("t", `"id":3,"note":"z"`))
			fails(t, err, fault.Failed, `{"id":2}`, "sequence 2", "swallowed")
			b.restart(Options{IgnoreMissing: true})
			b.seq = 0
			b.must("a", b.insert("t", `"id":1,"note":"x"`), b.insert("t", `"id":2,"note":"y"`), b.insert("t", `"id":3,"note":"z"`))
			b.want("TABLE t", "(1,x) (3,z)")
			if s := b.target.Stats(); s.Missing != 1 {
				t.Errorf("%d missing rows counted, want 1", s.Missing)
			}
		})
	}
	t.Run("keyless", func(t *testing.T) {
		b := newBench(t, "CREATE TABLE t (a int); CREATE RULE r AS ON INSERT TO t DO INSTEAD NOTHING", Options{})
		fails(t, b.apply("a", b.change("insert", "t", "", `"after":{"a":1}`)), fault.Failed, "swallowed")
	})
	t.Run("child", func(t *testing.T) {
		b := newBench(t, twoColumns+`; CREATE TABLE child (PRIMARY KEY (id)) INHERITS (t);
CREATE FUNCTION route() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO child VALUES (new.*); RETURN NULL; END';
CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION route()`, Options{})
		b.must("a", b.insert("t", `"id":1,"note":"x"`), b.insert("t", `"id":2,"note":"y"`), b.update("t", `"id":2,"note":"z"`))
		b.want("TABLE t", "(1,x) (2,z)")
	})
}
