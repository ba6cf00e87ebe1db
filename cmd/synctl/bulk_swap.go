package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"synctl/internal/bulk"
	"synctl/internal/cli"
	"synctl/internal/fault"
	"synctl/internal/swap"
)

// loadSwap is the exchange that 'bulk load --swap' does after the load.
type loadSwap struct {
	on      bool
	confirm string
	opts    swap.Options
	result  *swap.Result // of the dry run before the load, then of the exchange
}

func (s *loadSwap) add(fs *pflag.FlagSet) {
	s.opts = swap.Defaults()
	fs.BoolVar(&s.on, "swap", false, "bring the staging table live once it is complete, as 'synctl swap' does; its flags are:")
	addExchangeFlags(fs, &s.confirm, &s.opts)
}

// prepare checks the flags, asks where there is a terminal to ask on, and hangs the exchange on to the load.
func (s *loadSwap) prepare(r *cli.Run, o *bulkLoadOptions) error {
	if !s.on {
		if s.opts.Partition != "" || s.opts.Values != "" || len(s.opts.Checks) > 0 || s.opts.WaitFor != "" || s.opts.KeepUnlogged || s.opts.IgnoreSnapshots || s.confirm != "" {
			return fault.New(fault.Usage, "Add --swap, or leave them out and run 'synctl swap' afterwards.",
				"--partition, --values, --check, --wait-for, --keep-unlogged, --ignore-snapshots and --confirm are of the exchange, and --swap is missing")
		}
		return nil
	}
	s.opts.To, s.opts.Log = o.load.To, r.Log
	o.load.Follow = &bulk.Follow{
		Check: func(ctx context.Context, t bulk.Tables, create []string) error {
			dry := s.options(t)
			dry.DryRun, dry.Draft = true, create
			var err error
			s.result, err = swap.Run(ctx, dry)
			return err
		},
		Do: func(ctx context.Context, t bulk.Tables) error {
			r.Log.Info("the staging table is complete: bringing it live", "table", o.load.Table)
			var err error
			s.result, err = swap.Run(ctx, s.options(t))
			return err
		},
	}
	if o.dryRun {
		return nil
	}
	named := s.opts
	named.Table = o.load.Table
	return ask(r, s.confirm, o.load.Table, fmt.Sprintf("%s is going to be replaced in %s by the data of %s.", swapped(named), o.load.To, o.from))
}

func (s *loadSwap) options(t bulk.Tables) swap.Options {
	o := s.opts
	o.Table, o.Staging = t.Live, t.Staging
	return o
}

// outcome is the exchange's part of the summary; nil without --swap.
func (s *loadSwap) outcome(sum *bulk.Summary) *swap.Result {
	if s.on && sum.AlreadyDone {
		return &swap.Result{Table: sum.Table, Partition: s.opts.Partition, Staging: sum.Staging, Outcome: "already", Rows: -1, Steps: []swap.StepTime{}}
	}
	return s.result
}

// loadSummary is the result of 'bulk load': the load's, and the exchange's beside it.
type loadSummary struct {
	*bulk.Summary
	Swap *swap.Result `json:"swap,omitempty"`
}

func (s loadSummary) write(w io.Writer) error {
	if err := writeLoadSummary(w, s.Summary); err != nil || s.Swap == nil || s.AlreadyDone {
		return err
	}
	fmt.Fprintln(w)
	return writeSwapSummary(w, s.Swap)
}

// loadPlan is the same of a dry run.
type loadPlan struct {
	*bulk.Plan
	Swap *swap.Result `json:"swap,omitempty"`
}

func (p loadPlan) write(w io.Writer) error {
	if err := writeLoadPlan(w, p.Plan); err != nil || p.Swap == nil {
		return err
	}
	fmt.Fprintf(w, "\n-- then the exchange; the numbers in names are this dry run's\n")
	return swap.WriteScript(w, p.Swap.Plan)
}
