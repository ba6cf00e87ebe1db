package swap

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"synctl/internal/fault"
	"synctl/internal/pg"
)

// Run brings a staging table live. The result is not nil when some of the work was done, also beside an error.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Staging == "" {
		return nil, fault.New(fault.Usage, "Name the loaded table with --staging.", "no staging table given")
	}
	return run(ctx, o, actionSwap, func(ctx context.Context, s *session, t *target) (string, error) {
		if t.staging != 0 || len(s.drafted()) > 0 {
			return "", nil
		}
		return s.takeUp(ctx, t)
	})
}

// maxRounds is how often a swap starts again because somebody changed a definition meanwhile.
const maxRounds = 5

// finder completes the target: which table comes. It gives an outcome when there is nothing left to exchange.
type finder func(ctx context.Context, s *session, t *target) (outcome string, err error)

func run(ctx context.Context, o Options, action string, find finder) (res *Result, err error) {
	begin := time.Now()
	s, err := open(ctx, o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	defer func() { err = serverFault(err) }()
	t, err := s.target(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.planning(ctx); err != nil {
		return nil, err
	}
	if err := s.begin(ctx, t); err != nil {
		return nil, err
	}
	outcome, err := find(ctx, s, t)
	if err != nil {
		return nil, err
	}
	res = &Result{Table: t.display(), Partition: t.partition(), Staging: displayName(t.stagingSchema, t.stagingName), Rows: -1, Steps: []StepTime{}}
	if t.staging == 0 && t.stagingName == "" {
		res.Staging = ""
	}
	defer func() { res.Seconds = seconds(time.Since(begin)) }()
	r := &runner{session: s, t: t, res: res, action: action}
	if outcome != "" {
		res.Outcome = outcome
		if outcome == "finished" && !o.DryRun {
			return res, r.finish(ctx)
		}
		return res, nil
	}
	if o.DryRun {
		return res, r.dry(ctx)
	}
	err = r.rounds(ctx)
	if err != nil {
		err = errors.Join(err, r.withdraw(ctx))
	}
	return res, err
}

// begin keeps other swaps of the table out and clears away what a killed one left.
func (s *session) begin(ctx context.Context, t *target) error {
	if s.opts.DryRun {
		return nil
	}
	if err := s.ensureState(ctx); err != nil {
		return err
	}
	if err := s.exclusive(ctx, t); err != nil {
		return err
	}
	return s.clearLeftovers(ctx, t)
}

// runner carries out a plan.
type runner struct {
	*session
	t        *target
	res      *Result
	action   string
	excluded *plan // whose exclusion is on the default partition and has to go if the exchange fails
}

func (r *runner) dry(ctx context.Context) error {
	now, err := r.survey(ctx, r.t)
	if err != nil {
		return err
	}
	if err := now.refusal(); err != nil {
		return err
	}
	p := makePlan(now, r.t, r.opts, r.action)
	r.res.Outcome, r.res.Plan, r.res.Warnings, r.res.Bound = "planned", p.steps, now.warnings, now.bound
	for i := range p.steps {
		for j := range p.steps[i].SQL {
			p.steps[i].SQL[j] = pg.Redact(p.steps[i].SQL[j])
		}
	}
	return nil
}

// rounds prepares until a survey finds nothing left to prepare, and exchanges what that survey saw.
func (r *runner) rounds(ctx context.Context) error {
	for round := range maxRounds {
		now, err := r.survey(ctx, r.t)
		if err != nil {
			return err
		}
		if err := now.refusal(); err != nil {
			return err
		}
		for _, w := range now.warnings {
			r.res.warn(r.log, w)
		}
		r.res.Bound = now.bound
		p := makePlan(now, r.t, r.opts, r.action)
		if round == 0 {
			err = r.prepare(ctx, p, func(st Step) bool { return true })
		} else {
			err = r.prepare(ctx, p, func(st Step) bool { return st.diff })
		}
		if err != nil {
			return err
		}
		done, err := r.tryExchange(ctx)
		if err != nil && !errors.Is(err, errChanged) {
			return err
		}
		if done {
			return nil
		}
	}
	return fault.New(fault.Failed, "Wait until nobody changes the table's definition, then run the same command again.",
		"the definition of %s or of its staging table changed %d times while the exchange was prepared", r.t.display(), maxRounds)
}

// prepare carries out what comes before the exchange.
func (r *runner) prepare(ctx context.Context, p *plan, want func(Step) bool) error {
	for _, st := range p.steps {
		if st.kind == notePrint {
			return nil
		}
		if !want(st) {
			continue
		}
		if err := r.step(ctx, p, st); err != nil {
			return err
		}
	}
	return nil
}

// tryExchange surveys once more; if everything is prepared it exchanges and does what follows.
func (r *runner) tryExchange(ctx context.Context) (bool, error) {
	now, err := r.survey(ctx, r.t)
	if err != nil {
		return false, err
	}
	if err := now.refusal(); err != nil {
		return false, err
	}
	p := makePlan(now, r.t, r.opts, r.action)
	passed := false
	for _, st := range p.steps {
		if st.diff {
			r.log.Debug("another round of preparation", "step", st.Name, "sql", st.SQL)
			return false, nil
		}
		if passed = passed || st.kind == notePrint; !passed {
			continue
		}
		if err := r.step(ctx, p, st); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (r *runner) step(ctx context.Context, p *plan, st Step) error {
	if r.opts.OnStep != nil {
		r.opts.OnStep(st.Name)
	}
	r.log.Debug("step", "name", st.Name, "lock", st.Lock)
	begin := time.Now()
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { r.tell(st.Name, begin, quit) })
	err := r.carryOut(ctx, p, st)
	close(quit)
	wg.Wait()
	r.res.Steps = append(r.res.Steps, StepTime{st.Name, seconds(time.Since(begin))})
	if err != nil && fault.HintOf(err) == "" && !errors.Is(err, errChanged) {
		err = fmt.Errorf("step %s: %w", st.Name, err)
	}
	return err
}

// tell says every ten seconds which step it is that takes so long.
func (r *runner) tell(step string, begin time.Time, quit <-chan struct{}) {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-quit:
			return
		case <-tick.C:
			r.log.Info("still at it", "step", step, "for", time.Since(begin).Round(time.Second))
		}
	}
}

func (r *runner) carryOut(ctx context.Context, p *plan, st Step) error {
	switch st.kind {
	case inTransaction:
		_, err := r.message(ctx, st.SQL)
		return err
	case guarded:
		return r.guardedStep(ctx, p, st)
	case alone:
		for _, sql := range st.SQL {
			if _, err := r.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	case parallel:
		return r.parallel(ctx, st.SQL)
	case rowCheck:
		n, err := r.checkRows(ctx, p, st.SQL[0], r.opts.MinRows)
		r.res.Rows = n
		return err
	case defaultCheck:
		return r.checkDefault(ctx, p, st.SQL[0])
	case userCheck:
		return r.checkQueries(ctx, st.SQL)
	case userWait:
		return r.waitFor(ctx, st.SQL[0])
	case snapshotWait:
		return r.waitSnapshots(ctx, st.SQL[0], r.res)
	case notePrint:
		var noted string
		if err := r.QueryRow(ctx, st.SQL[0]).Scan(&noted); err != nil {
			return err
		}
		if noted != p.s.print {
			return errChanged
		}
		return nil
	case exchange:
		return r.exchange(ctx, p, st)
	case retention:
		dropped, failed, err := r.retain(ctx, st.SQL)
		r.res.Dropped = append(r.res.Dropped, dropped...)
		for _, f := range failed {
			r.res.warn(r.log, f)
		}
		return err
	}
	return fmt.Errorf("unknown kind of step %d", st.kind)
}

func (r *runner) guardedStep(ctx context.Context, p *plan, st Step) error {
	if st.Name == "exclude from default" {
		r.excluded = p // also when the answer is lost: it may be there
	}
	a, err := r.guarded(ctx, st.Name, st.SQL, nil)
	r.count(a, a.last)
	return err
}

func (r *runner) count(a attempts, held time.Duration) {
	r.res.Retries += a.retries
	r.res.LockWaited = max(r.res.LockWaited, seconds(a.waited))
	r.res.LockHeld = max(r.res.LockHeld, seconds(held))
}

func (r *runner) exchange(ctx context.Context, p *plan, st Step) error {
	a, err := r.guarded(ctx, st.Name, st.SQL, p.s.oids())
	if err != nil {
		r.count(a, 0)
		return err
	}
	r.excluded = nil
	r.res.Outcome = "swapped"
	if r.action == actionRollback {
		r.res.Outcome = "rolled back"
	}
	if p.s.old != nil {
		r.res.Kept = displayName(p.s.schema, p.keptName(p.s.name))
	}
	// What the server waited for locks is subtracted from what the whole message took here: an upper bound of what the
	// locks were held, the commit included.
	var waited float64
	schema, name := partKey(r.t)
	if err := r.QueryRow(ctx, `SELECT extract(epoch FROM locked_at - began_at)::float8 FROM synctl.swap WHERE state = 'exchanged'
		AND table_schema = $1 AND table_name = $2 AND part_schema = $3 AND part_name = $4 ORDER BY exchanged_at DESC LIMIT 1`,
		r.t.tableSchema, r.t.tableName, schema, name).Scan(&waited); err != nil {
		return fmt.Errorf("read synctl.swap: %w", err)
	}
	wait := time.Duration(waited * float64(time.Second))
	a.waited = max(a.waited, wait)
	r.count(a, a.last-wait)
	return nil
}

// parallel carries out each statement on a connection of its own, at most IndexJobs at once.
func (r *runner) parallel(ctx context.Context, statements []string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.opts.IndexJobs)
	for _, sql := range statements {
		g.Go(func() error {
			conn, err := dial(ctx, r.opts)
			if err != nil {
				return err
			}
			defer conn.Close(context.WithoutCancel(ctx))
			if err := quiet(ctx, conn, r.version); err != nil {
				return err
			}
			if err := r.helperLock(ctx, conn, r.t); err != nil {
				return err
			}
			if _, err := conn.Exec(ctx, "SET search_path = ''"); err != nil {
				return fmt.Errorf("set search_path: %w", err)
			}
			if _, err := conn.Exec(ctx, sql); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// finish does what a run that was killed after its exchange had left to do.
func (r *runner) finish(ctx context.Context) error {
	live, err := describe(ctx, r.session, r.version, r.t.table)
	if err != nil {
		return err
	}
	p := &plan{s: &situation{version: r.version, schema: r.t.schema, name: r.t.name}, o: r.opts, t: r.t}
	kept, err := keptNames(ctx, r.session, r.t, 0)
	if err != nil {
		return err
	}
	p.addAftermath(live, kept, r.action)
	for _, st := range p.steps {
		if err := r.step(ctx, p, st); err != nil {
			return err
		}
	}
	return nil
}

// withdraw takes the exclusion off the default partition after a failure, so that it accepts rows as before. It uses a
// connection of its own: the run's is gone when the run was interrupted.
func (r *runner) withdraw(ctx context.Context) error {
	if r.excluded == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	s, err := open(ctx, r.opts)
	if err != nil {
		return fmt.Errorf("take the exclusion off the default partition: %w", err)
	}
	defer s.close()
	return s.dropConstraint(ctx, r.excluded.s.deflt.OID, r.excluded.excludeName())
}
