package swap

import (
	"log/slog"
	"strings"
	"time"

	"synctl/internal/fault"
	"synctl/internal/pg"
)

// Options say what to exchange and how patiently. Take them from Defaults and set the first five.
type Options struct {
	To        pg.DSN
	Table     string // the live table, as SQL has it: orders, sales.orders, "Odd Name"
	Staging   string // the loaded table that is to take its place, or a partition's
	Partition string // the partition to replace or to add; empty: the whole plain table
	Values    string // IN (…) or FROM (…) TO (…); may be left out for a partition that exists

	LockTimeout     time.Duration // the longest that one attempt makes anybody wait, waiting and exchanging together; 250ms
	LockRetries     int           // attempts after the first before giving up; 30
	MinRows         int64         // fewer rows in staging than this are refused; 1
	Checks          []string      // queries that must return true before the exchange
	WaitFor         string        // a query that is asked again until it returns true, before the exchange
	WaitTimeout     time.Duration // how long WaitFor may take; 0 is for ever
	KeepOld         int           // how many former tables to keep for a rollback; 1
	KeepUnlogged    bool          // leave an unlogged staging table unlogged; a crash then empties the live table
	SnapshotWait    time.Duration // how long to wait for snapshots that are older than the data; 30s
	IgnoreSnapshots bool          // exchange although older snapshots remain
	IndexJobs       int           // connections that build indexes at once; 4
	DryRun          bool          // plan, change nothing
	// Draft is SQL that makes the staging table, for a dry run before there is one. It runs inside of the transaction that
	// reads the catalogs, which is rolled back.
	Draft []string

	Log *slog.Logger // not nil
	// OnStep, when not nil, is called before every step of a run with its name.
	OnStep func(step string)
}

// Defaults are the options of a swap without any flag.
func Defaults() Options {
	return Options{LockTimeout: 250 * time.Millisecond, LockRetries: 30, MinRows: 1, KeepOld: 1, SnapshotWait: 30 * time.Second,
		IndexJobs: 4, Log: slog.New(slog.DiscardHandler)}
}

func (o *Options) check() error {
	switch {
	case o.Table == "":
		return fault.New(fault.Usage, "Name the live table with --table.", "no table given")
	case o.LockTimeout < time.Millisecond:
		return fault.New(fault.Usage, "Give --lock-timeout a duration such as 250ms.", "the lock timeout must be at least 1ms, not %s", o.LockTimeout)
	case o.LockRetries < 0, o.KeepOld < 0, o.MinRows < 0, o.IndexJobs < 1, o.SnapshotWait < 0, o.WaitTimeout < 0:
		return fault.New(fault.Usage, "Give counts and durations of zero or more, and at least one index job.", "a negative count or duration")
	case o.Values != "" && o.Partition == "":
		return fault.New(fault.Usage, "Add --partition NAME.", "--values says which rows a partition holds, and no partition is named")
	}
	o.Values = strings.TrimSpace(o.Values)
	if len(o.Values) >= 10 && strings.EqualFold(o.Values[:10], "FOR VALUES") {
		o.Values = strings.TrimSpace(o.Values[10:])
	}
	return nil
}
