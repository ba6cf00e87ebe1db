package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"synctl/internal/bulk"
	"synctl/internal/bulk/convert"
	"synctl/internal/cli"
	"synctl/internal/fault"
	"synctl/internal/pg"
)

// bulkLoadOptions is the command line of 'bulk load'.
type bulkLoadOptions struct {
	from, to                  string
	rename                    []string
	filter                    string
	queueBytes                cli.Size
	stagingKind               cli.Choice
	onReject, nul, copyFormat cli.Choice
	transformFile             string
	dryRun                    bool
	csv                       csvFlags
	load                      bulk.Options
	swap                      loadSwap
}

func newBulkLoad(app *cli.App) *cobra.Command {
	o := &bulkLoadOptions{queueBytes: 64 << 20, stagingKind: cli.NewChoice("unlogged", "logged"), onReject: cli.NewChoice("fail", "dead-letter"),
		nul: cli.NewChoice("fail", "strip", "replace"), copyFormat: cli.NewChoice("binary", "text")}
	cmd := &cobra.Command{
		Use:   "load --from DATASET --to DSN --table schema.table",
		Short: "Load a data set into a staging table",
		Long: `Reads a data set and copies it into a new staging table that is made like the live table, without its constraints and
indexes. Before a row is read the data set's schema is held against the table's, and every difference is named (exit 4).
Values arrive exact or are an error with file, row and column; nothing is rounded, cut or turned into null.

A load that fails or is killed leaves nothing that the next one trips over. With --run-id a ledger in the target database
remembers the run: one that is complete says so and exits 0, one that was killed starts again.

With --swap the staging table is brought live afterwards, in the same run: what could not be exchanged is refused before a
row is read, and a run (with --run-id) that ended between load and exchange goes on there.`,
		Example: `  # Parquet files into shop_staging, read and copied in parallel
  synctl bulk load --from 'parquet:export/*.parquet' --to postgres://app@localhost/shop --table public.shop

  # See what would run
  synctl bulk load --from 'csv:prices.csv.gz' --to postgres://app@localhost/shop --table public.prices --dry-run

  # From another program, once per day however often it is tried
  zcat dump.json.gz | synctl bulk load --from - --to postgres://app@localhost/shop --table public.shop --run-id 2026-11-30

  # Load a day's partition and bring it live in one go
  synctl bulk load --from 'parquet:export/*.parquet' --to postgres://app@localhost/shop --table public.shop --run-id 2026-11-30 \
    --swap --partition shop_20261130 --values "IN ('2026-11-30')" --min-rows 100000

  # A BigQuery table, some of its rows
  synctl bulk load --from bigquery://project/dataset/shop --filter "day = '2026-11-30'" --to postgres://app@localhost/shop --table public.shop`,
		Args: cobra.NoArgs,
	}
	fs := cmd.Flags()
	fs.StringVar(&o.from, "from", "", "data set: bigquery://PROJECT/DATASET/TABLE, parquet:GLOB, csv:GLOB, ndjson:GLOB, or - for NDJSON on stdin")
	fs.StringVar(&o.to, "to", "", "PostgreSQL to load into: a URL or a libpq keyword string; the libpq environment fills in")
	fs.StringVar(&o.load.Table, "table", "", "the live table, schema.table; staging is made like it")
	fs.StringVar(&o.load.Staging, "staging", "", "name of the staging table (default the table's with _staging)")
	fs.Var(&o.stagingKind, "staging-kind", "whether the staging table is in the write-ahead log")
	fs.StringSliceVar(&o.load.Columns, "columns", nil, "columns of the data set to load (default all)")
	fs.StringSliceVar(&o.rename, "rename", nil, "from=to: a column of the data set goes into one of another name; repeatable")
	fs.StringVar(&o.filter, "filter", "", "row restriction: BigQuery's for BigQuery, comparisons joined by AND for Parquet")
	fs.BoolVar(&o.load.AllowNarrowing, "allow-narrowing", false, "let types pass that may not fit the table's; every value is then checked")
	fs.IntVar(&o.load.Readers, "readers", 0, "parts read at once (default the cores, at most 4)")
	fs.IntVar(&o.load.Writers, "writers", 0, "connections that copy at once (default the cores, at most 4)")
	fs.Var(&o.queueBytes, "queue-bytes", "bytes in memory between readers and writers")
	fs.StringVar(&o.load.RunID, "run-id", "", "remember the run under this ID in the target's schema synctl")
	fs.Var(&o.onReject, "on-reject", "what to do with a row that does not fit")
	fs.StringVar(&o.load.DeadLetter, "dead-letter", "", "file for rows that do not fit, with the reason")
	fs.Var(&o.nul, "nul", "what to do with NUL characters in strings, which PostgreSQL cannot hold")
	fs.Var(&o.copyFormat, "copy-format", "form of COPY; text leaves the reading of text values to the server")
	fs.StringVar(&o.transformFile, "transform", "", "file of SQL to run after the load; {{staging}} and {{table}} are put in")
	fs.BoolVar(&o.load.KeepStaging, "keep-staging", false, "keep the staging table of a load that failed")
	fs.BoolVarP(&o.dryRun, "dry-run", "n", false, "connect, check, print the plan, change nothing")
	o.csv.add(fs)
	o.swap.add(fs)
	output := cli.AddOutputFlag(fs)
	cmd.RunE = app.Finite(func(ctx context.Context, r *cli.Run) error { return runBulkLoad(ctx, r, o, output) })
	return cmd
}

func runBulkLoad(ctx context.Context, r *cli.Run, o *bulkLoadOptions, output *cli.Output) error {
	if err := o.finish(r); err != nil {
		return err
	}
	if r.Getenv("GOGC") == "" {
		defer boundGarbage()()
	}
	if err := o.swap.prepare(r, o); err != nil {
		return err
	}
	src, err := openDataSet(ctx, r, o)
	if err != nil {
		return err
	}
	defer src.Close()
	job := bulk.New(src, o.load)
	if o.dryRun {
		plan, err := job.Plan(ctx)
		if err != nil {
			return err
		}
		both := loadPlan{plan, o.swap.result}
		return r.Result(output, both, both.write)
	}
	stop, err := r.Report(func() cli.Snapshot {
		p := job.Progress()
		return cli.Snapshot{Records: p.Copied, Bytes: p.CopiedBytes, Total: p.Total, InFlight: max(p.Read-p.Copied-p.Rejected, 0), DeadLetters: p.Rejected,
			Retries: p.Trouble.Retries, Throttled: p.Trouble.Throttled, Ready: true}
	})
	if err != nil {
		return err
	}
	defer stop()
	sum, err := job.Run(ctx)
	stop()
	if err != nil && fault.ClassOf(err) != fault.DeadLetters {
		return err
	}
	both := loadSummary{sum, o.swap.outcome(sum)}
	if printErr := r.Result(output, both, both.write); printErr != nil {
		return printErr
	}
	return err
}

// finish checks flags against each other and turns them into the job's options.
func (o *bulkLoadOptions) finish(r *cli.Run) error {
	switch {
	case o.from == "":
		return fault.New(fault.Usage, "Name the data set, such as --from 'parquet:data/*.parquet'.", "--from is missing")
	case o.load.Table == "":
		return fault.New(fault.Usage, "Name the live table with --table schema.table; the staging table is made like it.", "--table is missing")
	case (o.onReject.Value == "dead-letter") != (o.load.DeadLetter != ""):
		return fault.New(fault.Usage, "Give both, or neither.", "--on-reject dead-letter and --dead-letter FILE belong together")
	case o.load.Readers < 0 || o.load.Writers < 0 || o.queueBytes < 0:
		return fault.New(fault.Usage, "Leave them out for the defaults.", "--readers, --writers and --queue-bytes cannot be negative")
	}
	o.load.To = pg.DSN(o.to)
	o.load.Logged = o.stagingKind.Value == "logged"
	o.load.QueueBytes = int64(o.queueBytes)
	o.load.NUL = map[string]convert.NULPolicy{"fail": convert.NULFail, "strip": convert.NULStrip, "replace": convert.NULReplace}[o.nul.Value]
	if o.copyFormat.Value == "text" {
		o.load.CopyFormat = convert.TextFormat
	}
	o.load.Rename = map[string]string{}
	for _, pair := range o.rename {
		from, to, ok := strings.Cut(pair, "=")
		if !ok || from == "" || to == "" {
			return fault.New(fault.Usage, "Write --rename from=to.", "--rename %q", pair)
		}
		o.load.Rename[from] = to
	}
	if o.transformFile != "" {
		sql, err := os.ReadFile(o.transformFile)
		if err != nil {
			return fault.Wrap(fault.Usage, "Name a file of SQL that can be read.", fmt.Errorf("read --transform: %w", err))
		}
		o.load.Transform = string(sql)
	}
	o.load.Log = r.Log
	return nil
}

func writeLoadPlan(w io.Writer, p *bulk.Plan) error {
	known := func(n int64, f func(int64) string) string {
		if n < 0 {
			return "unknown"
		}
		return f(n)
	}
	about := ""
	if p.Estimated && p.Rows >= 0 {
		about = "about "
	}
	fmt.Fprintf(w, "source    %s: %s%s rows, %s, %d %s\n", p.Source, about, known(p.Rows, cli.FormatCount), known(p.Bytes, cli.FormatBytes), p.Parts, p.PartsName)
	if p.Note != "" {
		fmt.Fprintf(w, "          %s\n", p.Note)
	}
	fmt.Fprintf(w, "target    %s, by way of %s\n", p.Table, p.Staging)
	fmt.Fprintf(w, "copy      %s, %d readers, %d writers\n", formatWords(p.Format, p.TextReason), p.Readers, p.Writers)
	for _, q := range p.SQL {
		if _, err := fmt.Fprintf(w, "%s;\n", strings.TrimSuffix(strings.TrimSpace(q), ";")); err != nil {
			return err
		}
	}
	return nil
}

func formatWords(format, reason string) string {
	if reason == "" {
		return format
	}
	return format + " (" + reason + ")"
}

func writeLoadSummary(w io.Writer, s *bulk.Summary) error {
	if s.AlreadyDone {
		_, err := fmt.Fprintf(w, "run %s is complete already: %s rows of %s, loaded into %s\n", s.RunID, cli.FormatCount(s.Rows), s.Source, s.Staging)
		return err
	}
	rows := [][]string{
		{"staging", s.Staging},
		{"rows", cli.FormatCount(s.Rows)},
		{"copied", fmt.Sprintf("%s in %.1fs, %s rows/s", cli.FormatBytes(s.Bytes), s.Seconds, cli.FormatCount(int64(s.RowsPerSec)))},
		{"copy format", formatWords(s.Format, s.TextReason)},
		{"queue peak", cli.FormatBytes(s.QueuePeak)},
	}
	if s.Filtered > 0 {
		rows = append(rows, []string{"filtered out", cli.FormatCount(s.Filtered)})
	}
	if s.Rejected > 0 {
		rows = append(rows, []string{"rejected", fmt.Sprintf("%s, in %s", cli.FormatCount(s.Rejected), s.DeadLetter)})
	}
	if s.NULs > 0 {
		rows = append(rows, []string{"NUL characters", cli.FormatCount(s.NULs)})
	}
	if t := s.Trouble; t != nil && t.Retries > 0 {
		rows = append(rows, []string{"retries", fmt.Sprintf("%d, of them %d for an exhausted quota", t.Retries, t.Throttled)})
	}
	if s.AfterSQL != nil {
		rows = append(rows, []string{"after transform", cli.FormatCount(*s.AfterSQL)})
	}
	for i, r := range s.Readers {
		rows = append(rows, []string{fmt.Sprintf("reader %d", i+1), cli.FormatCount(r.Rows) + " rows"})
	}
	for i, wr := range s.Writers {
		rows = append(rows, []string{fmt.Sprintf("writer %d", i+1), fmt.Sprintf("%s rows, %s", cli.FormatCount(wr.Rows), cli.FormatBytes(wr.Bytes))})
	}
	return cli.Table(w, []string{"load of", s.Table}, rows)
}
