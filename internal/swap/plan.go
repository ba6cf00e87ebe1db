package swap

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"unicode/utf8"

	"synctl/internal/pg"
)

// Step is one named part of a plan.
type Step struct {
	Name string   `json:"name"`
	Lock string   `json:"lock"` // what it locks, in words; empty: nothing that lasts
	SQL  []string `json:"sql"`

	kind stepKind
	// diff steps exist only while newcomer and model differ: a second survey must find none of them.
	diff bool
}

type stepKind int

const (
	inTransaction stepKind = iota // all statements in one message, BEGIN to COMMIT
	guarded                       // the same, on live tables: under the lock timeout, tried again
	alone                         // each statement by itself, outside a transaction
	parallel                      // each statement on a connection of its own
	rowCheck                      // the staging table's rows
	defaultCheck                  // the default partition's rows
	userCheck                     // --check
	userWait                      // --wait-for
	snapshotWait
	notePrint
	exchange
	retention
)

// plan is what a run does, in order.
type plan struct {
	s     *situation
	o     Options
	t     *target
	steps []Step

	indexes []indexPair
	stats   []statPair
	idents  []identPair
}

type indexPair struct {
	want index
	have *index // nil: to be built
	name string // of the newcomer's, before the exchange
	last string // of the newcomer's, after it
	old  string // of the former's; empty: none
}

type statPair struct {
	want statistic
	name string
	have *statistic
	old  bool
}

type identPair struct {
	want sequence
	have *sequence
	name string
}

// fit makes a name of at most 63 bytes that ends with suffix. What is cut off goes into a hash: two long names that
// begin alike must not become one.
func fit(name, suffix string) string {
	const most = 63
	if len(name)+len(suffix) <= most {
		return name + suffix
	}
	h := fnv.New32a()
	h.Write([]byte(name))
	suffix = fmt.Sprintf("_%08x%s", h.Sum32(), suffix)
	cut := name[:most-len(suffix)]
	for !utf8.ValidString(cut) {
		cut = cut[:len(cut)-1]
	}
	return cut + suffix
}

func (p *plan) keptName(name string) string { return fit(name, fmt.Sprintf("_old_%d", p.s.old.OID)) }
func (p *plan) tempName(name string) string { return fit(name, fmt.Sprintf("_new_%d", p.s.new.OID)) }
func (p *plan) boundName() string           { return fmt.Sprintf("synctl_bound_%d", p.s.new.OID) }
func (p *plan) excludeName() string         { return fmt.Sprintf("synctl_exclude_%d", p.s.new.OID) }

// staging is the newcomer's qualified name once it is in the right schema.
func (p *plan) staging() string { return pg.Ident(p.s.schema, p.s.new.Name) }

func (p *plan) add(s Step) {
	if s.kind == guarded {
		s.SQL = append([]string{fmt.Sprintf("SET LOCAL statement_timeout = %d", p.o.LockTimeout.Milliseconds())}, s.SQL...)
	}
	if len(s.SQL) > 0 {
		p.steps = append(p.steps, s)
	}
}

// makePlan plans a swap: preparation, exchange, and what follows.
func makePlan(s *situation, t *target, o Options, action string) *plan {
	p := &plan{s: s, o: o, t: t}
	p.add(Step{Name: "claim", SQL: []string{claimSQL(s, t, action)}})
	if s.new != nil {
		p.pair()
		p.addPreparation()
	}
	p.addUserSteps()
	if s.new != nil {
		p.addExclusion()
	}
	p.add(Step{Name: "note definition", SQL: []string{"UPDATE synctl.swap SET print = (" + fingerprintSQL(s.oids()) + ") WHERE " + stateKey(t) + " RETURNING print"}, kind: notePrint})
	p.add(Step{Name: "exchange", Lock: p.exchangeLocks(), SQL: p.exchange(), kind: exchange})
	kept := s.kept
	if s.old != nil {
		kept = append([]string{pg.Ident(s.schema, p.keptName(s.name))}, kept...)
	}
	p.addAftermath(s.live(), kept, action)
	return p
}

// dropKept drops all but the newest keep of the tables listed.
func dropKept(tables []string, keep int) []string {
	var out []string
	for _, name := range tables[min(keep, len(tables)):] {
		out = append(out, "DROP TABLE "+name)
	}
	return out
}

func (p *plan) addPreparation() {
	on := "ACCESS EXCLUSIVE on staging, which nobody uses"
	p.add(Step{Name: "storage", Lock: on, SQL: p.storage(), diff: true})
	if p.s.new.Persistence == "u" && !p.o.KeepUnlogged {
		// Before the indexes exist: it rewrites the heap and would write them all again.
		p.add(Step{Name: "set logged", Lock: on, diff: true, SQL: []string{
			"ALTER TABLE " + p.staging() + " SET LOGGED",
			"UPDATE synctl.swap SET rewrite_xid = pg_catalog.pg_current_xact_id() WHERE " + stateKey(p.t)}})
		// A transaction of its own: the time has to be after the rewrite's commit.
		p.add(Step{Name: "note rewrite", diff: true, SQL: []string{"UPDATE synctl.swap SET rewritten_at = pg_catalog.clock_timestamp() WHERE " + stateKey(p.t)}})
	}
	p.add(Step{Name: "check rows", Lock: "ACCESS SHARE on staging", SQL: []string{p.rowQuery()}, kind: rowCheck})
	if p.s.deflt != nil && p.s.old == nil {
		p.add(Step{Name: "check default", Lock: "ACCESS SHARE on " + p.s.deflt.display(), kind: defaultCheck,
			SQL: []string{fmt.Sprintf("SELECT count(*) FROM %s WHERE %s", p.s.deflt.ident(), p.s.only)}})
	}
	p.add(Step{Name: "constraints", Lock: on, SQL: p.constraints(), diff: true})
	p.add(Step{Name: "indexes", Lock: "SHARE on staging", SQL: p.buildIndexes(), kind: parallel, diff: true})
	p.add(Step{Name: "keys", Lock: on, SQL: p.keys(), diff: true})
	p.addForeignKeys()
	p.add(Step{Name: "definition", Lock: on, SQL: p.definition(), diff: true})
	p.add(Step{Name: "analyze", Lock: "SHARE UPDATE EXCLUSIVE on staging", kind: alone,
		// The visibility map too: without it the first index-only scans read the whole heap.
		SQL: []string{"VACUUM (ANALYZE, TRUNCATE false) " + p.staging()}})
}

func (p *plan) addUserSteps() {
	p.add(Step{Name: "check", SQL: p.o.Checks, kind: userCheck})
	if p.o.WaitFor != "" {
		p.add(Step{Name: "wait for", SQL: []string{p.o.WaitFor}, kind: userWait})
	}
	if p.s.new != nil {
		p.add(Step{Name: "wait for snapshots", SQL: []string{snapshotSQL(p.t)}, kind: snapshotWait})
	}
}

// addExclusion spares the exchange the scan of the default partition. It comes last: from then on the default
// partition refuses rows of a partition that is new.
func (p *plan) addExclusion() {
	d := p.s.deflt
	if d == nil {
		return
	}
	name := p.excludeName()
	i := slices.IndexFunc(d.Constraints, func(k constraint) bool { return k.Name == name })
	if i < 0 {
		p.add(Step{Name: "exclude from default", Lock: "ACCESS EXCLUSIVE on " + d.display() + ", for a moment", kind: guarded, diff: true,
			SQL: []string{fmt.Sprintf("ALTER TABLE %s ADD CONSTRAINT %s CHECK (NOT (%s)) NOT VALID", d.ident(), pg.Ident(name), p.s.only)}})
	}
	if i < 0 || !d.Constraints[i].Valid {
		p.add(Step{Name: "validate exclusion", Lock: "SHARE UPDATE EXCLUSIVE on " + d.display(), diff: true,
			SQL: []string{fmt.Sprintf("ALTER TABLE %s VALIDATE CONSTRAINT %s", d.ident(), pg.Ident(name))}})
	}
}

// kept are the kept tables of the target once the exchange is done, the newest first.
func (p *plan) addAftermath(live *relation, kept []string, action string) {
	if live.Kind == "p" {
		statement := "ANALYZE " + live.ident()
		if p.s.version >= 18 {
			statement = "ANALYZE ONLY " + live.ident() // the partitions are as they were analyzed
		}
		p.add(Step{Name: "analyze parent", Lock: "SHARE UPDATE EXCLUSIVE on " + live.display(), SQL: []string{statement}, kind: alone})
	}
	if action == actionSwap {
		p.add(Step{Name: "retention", Lock: "ACCESS EXCLUSIVE on kept tables", kind: retention, SQL: dropKept(kept, p.o.KeepOld)})
	}
	p.add(Step{Name: "finish", SQL: []string{finishSQL(p.t)}})
}

// pair matches what the live table has with what staging has already, by meaning and not by name.
func (p *plan) pair() {
	s := p.s
	used := map[uint32]bool{}
	for _, w := range p.wanted() {
		pr := indexPair{want: w, last: w.Name}
		if s.old != nil && !p.fromParent(w) {
			pr.old = w.Name
		} else {
			pr.last = p.childName(w.Name)
		}
		for i := range s.new.Indexes {
			if h := &s.new.Indexes[i]; !used[h.OID] && h.Valid && serves(*h, w) {
				pr.have = h
				if h.ConType == w.ConType {
					break // the exact one; a bare index only if there is none
				}
			}
		}
		pr.name = p.tempName(pr.last)
		if pr.have != nil {
			used[pr.have.OID] = true
			pr.name = pr.have.Name
		}
		p.indexes = append(p.indexes, pr)
	}
	for _, w := range s.model().Statistics {
		sp := statPair{want: w, name: p.tempName(w.Name), old: s.old != nil}
		for i := range s.new.Statistics {
			if h := &s.new.Statistics[i]; h.Def == w.Def && h.Schema == w.Schema {
				sp.have, sp.name = h, h.Name
			}
		}
		if !sp.old {
			sp.want.Name = p.childName(w.Name)
		}
		p.stats = append(p.stats, sp)
	}
	if s.parent != nil {
		return
	}
	for _, w := range s.old.Sequences {
		if !w.Identity {
			continue
		}
		ip := identPair{want: w, name: p.tempName(w.Name)}
		for i := range s.new.Sequences {
			if h := &s.new.Sequences[i]; h.Identity && h.Column == w.Column {
				ip.have, ip.name = h, h.Name
			}
		}
		p.idents = append(p.idents, ip)
	}
}

// wanted are the indexes that the newcomer must have: the former's, and those of the parent that it lacks (an index
// made ON ONLY the parent would be built during ATTACH, under the lock).
func (p *plan) wanted() []index {
	s := p.s
	if s.parent == nil {
		return s.old.Indexes
	}
	var list []index
	if s.old != nil {
		list = append(list, s.old.Indexes...)
	}
	for _, x := range s.parent.Indexes {
		if s.old == nil || !slices.ContainsFunc(s.old.Indexes, func(c index) bool { return c.Parent == x.OID }) {
			list = append(list, x)
		}
	}
	return list
}

func (p *plan) fromParent(x index) bool {
	return p.s.parent != nil && slices.ContainsFunc(p.s.parent.Indexes, func(y index) bool { return y.OID == x.OID })
}

// serves tells whether h can be w, or be made it by ADD CONSTRAINT … USING INDEX.
func serves(h, w index) bool {
	if h.Tail != w.Tail || h.Unique != w.Unique || h.Space != w.Space {
		return false
	}
	if h.ConType == w.ConType {
		return h.Deferrable == w.Deferrable && h.Deferred == w.Deferred
	}
	return h.ConType == "" && w.usesIndex()
}

// usesIndex tells whether x is a constraint that an index can be made into.
func (x index) usesIndex() bool {
	return (x.ConType == "p" || x.ConType == "u") && !strings.Contains(x.ConDef, "WITHOUT OVERLAPS")
}

// childName names a new partition's object after its parent's: events_pkey of events is events_2026_pkey of events_2026.
func (p *plan) childName(name string) string {
	if rest, ok := strings.CutPrefix(name, p.s.parent.Name+"_"); ok {
		return fit(p.s.name, "_"+rest)
	}
	return fit(p.s.name+"_"+name, "")
}
