package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"synctl/internal/cli"
	"synctl/internal/fault"
	"synctl/internal/stream"
	"synctl/internal/stream/file"
	"synctl/internal/stream/kinesis"
)

func newStreamGroup(app *cli.App) *cobra.Command {
	return cli.Group("stream", "List, describe, create and trim streams",
		`A stream is what cdc publish writes and replay reads: shards of records with sequence numbers. It is a directory on disk
(file:DIR: segments of NDJSON, one writer, any number of readers) or a Kinesis data stream (kinesis://NAME, with ?region=,
&profile= and &endpoint= where the environment does not say, or its ARN).`,
		newStreamList(app), newStreamDescribe(app), newStreamCreate(app), newStreamTrim(app))
}

func newStreamList(app *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [WHERE]",
		Short: "List the streams in a directory or of an AWS account",
		Long: `Lists the streams that lie in a directory (file:DIR, by default the current one; DIR itself if it is one), or those of an
account and region (kinesis://).`,
		Example: `  synctl stream list file:/var/lib/synctl
  synctl stream list 'kinesis://?region=eu-central-1' --output json`,
		Args: cobra.MaximumNArgs(1),
	}
	output := cli.AddOutputFlag(cmd.Flags())
	cmd.RunE = app.Finite(func(ctx context.Context, r *cli.Run) error {
		where := "file:."
		if len(r.Args) == 1 {
			where = r.Args[0]
		}
		return runStreamList(ctx, r, where, output)
	})
	return cmd
}

func runStreamList(ctx context.Context, r *cli.Run, where string, output *cli.Output) error {
	found, err := listStreams(ctx, where)
	if err != nil {
		return err
	}
	type item struct {
		Name string `json:"name"`
		URL  string `json:"url"`
	}
	list := struct {
		Streams []item `json:"streams"`
	}{[]item{}}
	for _, d := range found {
		list.Streams = append(list.Streams, item{d.Name, d.URL})
	}
	return r.Result(output, list, func(w io.Writer) error {
		if len(found) == 0 {
			_, err := fmt.Fprintln(r.Err, "no stream at "+where)
			return err
		}
		var rows [][]string
		for _, s := range list.Streams {
			rows = append(rows, []string{s.Name, s.URL})
		}
		return cli.Table(w, []string{"NAME", "URL"}, rows)
	})
}

func newStreamDescribe(app *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe STREAM",
		Short: "Show a stream's shards and what they hold",
		Long: `Shows each shard's range of hashes, whether it is open, and, where the stream tells, its records, bytes, oldest and newest
record. Kinesis does not tell what a shard holds.`,
		Example: `  synctl stream describe file:/var/lib/synctl/shop
  synctl stream describe kinesis://shop --output json`,
		Args: cobra.ExactArgs(1),
	}
	output := cli.AddOutputFlag(cmd.Flags())
	cmd.RunE = app.Finite(func(ctx context.Context, r *cli.Run) error {
		s, err := openStream(ctx, r.Args[0], r.Log)
		if err != nil {
			return err
		}
		defer s.Close()
		d, err := s.Describe(ctx)
		if err != nil {
			return err
		}
		return r.Result(output, describedStream(d), func(w io.Writer) error { return printStream(w, d) })
	})
	return cmd
}

// streamJSON and shardJSON are what describe --output json promises. A pointer that is null is what the stream does not tell.
type streamJSON struct {
	Name           string      `json:"name"`
	URL            string      `json:"url"`
	Status         string      `json:"status"`
	RetentionSecs  float64     `json:"retention_seconds"` // 0: for ever
	RetentionBytes int64       `json:"retention_bytes"`   // 0: unbounded
	MaxRecordBytes int         `json:"max_record_bytes"`
	Shards         []shardJSON `json:"shards"`
}

type shardJSON struct {
	ID       string     `json:"id"`
	Parents  []string   `json:"parents"`
	HashLow  string     `json:"hash_low"` // decimal
	HashTop  string     `json:"hash_top"`
	Open     bool       `json:"open"`
	Records  *int64     `json:"records"`
	Bytes    *int64     `json:"bytes"`
	Oldest   string     `json:"oldest"` // sequence numbers; empty: none, or not told
	Newest   string     `json:"newest"`
	OldestAt *time.Time `json:"oldest_at"`
	NewestAt *time.Time `json:"newest_at"`
}

func describedStream(d stream.Description) streamJSON {
	j := streamJSON{Name: d.Name, URL: d.URL, Status: d.Status, RetentionSecs: d.Retention.Seconds(),
		RetentionBytes: d.RetentionBytes, MaxRecordBytes: d.MaxRecordBytes, Shards: []shardJSON{}}
	count := func(n int64) *int64 {
		if n < 0 {
			return nil
		}
		return &n
	}
	at := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	for _, s := range d.Shards {
		j.Shards = append(j.Shards, shardJSON{ID: s.ID, Parents: append([]string{}, s.Parents...), HashLow: s.HashLow.String(),
			HashTop: s.HashTop.String(), Open: s.Open, Records: count(s.Records), Bytes: count(s.Bytes),
			Oldest: s.Oldest, Newest: s.Newest, OldestAt: at(s.OldestAt), NewestAt: at(s.NewestAt)})
	}
	return j
}

func printStream(w io.Writer, d stream.Description) error {
	retention, bytes := "for ever", ""
	if d.Retention > 0 {
		retention = d.Retention.String()
	}
	if d.RetentionBytes > 0 {
		bytes = ", at most " + cli.FormatBytes(d.RetentionBytes)
	}
	if _, err := fmt.Fprintf(w, "%s  %s  %s\nkept %s%s; records of at most %s\n\n", d.Name, d.URL, d.Status, retention, bytes,
		cli.FormatBytes(int64(d.MaxRecordBytes))); err != nil {
		return err
	}
	var rows [][]string
	for _, s := range d.Shards {
		state := "open"
		if !s.Open {
			state = "closed"
		}
		if len(s.Parents) > 0 {
			state += ", from " + strings.Join(s.Parents, " and ")
		}
		rows = append(rows, []string{s.ID, state, fmt.Sprintf("%032x-%032x", s.HashLow, s.HashTop),
			told(s.Records, cli.FormatCount), told(s.Bytes, cli.FormatBytes), end(s.Oldest, s.OldestAt), end(s.Newest, s.NewestAt)})
	}
	return cli.Table(w, []string{"SHARD", "STATE", "HASHES", "RECORDS", "BYTES", "OLDEST", "NEWEST"}, rows)
}

func told(n int64, format func(int64) string) string {
	if n < 0 {
		return "-"
	}
	return format(n)
}

func end(sequence string, at time.Time) string {
	switch {
	case sequence == "":
		return "-"
	case at.IsZero():
		return sequence
	}
	return sequence + " " + at.Format(time.RFC3339)
}

// streamCreateOptions are the flags of stream create.
type streamCreateOptions struct {
	URL            string
	Shards         int
	Retention      time.Duration
	RetentionBytes cli.Size
	SegmentBytes   cli.Size
}

func newStreamCreate(app *cli.App) *cobra.Command {
	o := streamCreateOptions{}
	cmd := &cobra.Command{
		Use:   "create STREAM --shards N",
		Short: "Create a stream",
		Long: `Creates a stream. One that is there already with as many shards is left as it is; with another number of shards it is an
error (exit 4). A file: stream keeps its records for ever unless --retention or --retention-bytes says otherwise; whole
segments are removed, by the process that publishes, never the one that is being written.`,
		Example: `  synctl stream create file:/var/lib/synctl/shop --shards 4 --retention 168h --retention-bytes 20GiB
  synctl stream create kinesis://shop --shards 4`,
		Args: cobra.ExactArgs(1),
	}
	fs := cmd.Flags()
	fs.IntVar(&o.Shards, "shards", 0, "number of shards (required)")
	fs.DurationVar(&o.Retention, "retention", 0, "file: remove segments whose newest record is older; 0 is never")
	fs.Var(&o.RetentionBytes, "retention-bytes", "file: remove the oldest segments beyond this size of all shards; 0 is never")
	fs.Var(&o.SegmentBytes, "segment-bytes", "file: size at which a segment is followed by a new one; 0 is 64MiB")
	output := cli.AddOutputFlag(fs)
	cmd.RunE = app.Finite(func(ctx context.Context, r *cli.Run) error {
		o.URL = r.Args[0]
		return runStreamCreate(ctx, r, o, output)
	})
	return cmd
}

func runStreamCreate(ctx context.Context, r *cli.Run, o streamCreateOptions, output *cli.Output) error {
	created, err := createStream(ctx, o.URL, newStream{Shards: o.Shards, Retention: o.Retention,
		RetentionBytes: int64(o.RetentionBytes), SegmentBytes: int64(o.SegmentBytes)}, r.Log)
	if err != nil {
		return err
	}
	result := struct {
		URL     string `json:"url"`
		Shards  int    `json:"shards"`
		Created bool   `json:"created"` // false: it was there already
	}{o.URL, o.Shards, created}
	return r.Result(output, result, func(w io.Writer) error {
		what := "exists already, with %d shards: %s\n"
		if created {
			what = "created, with %d shards: %s\n"
		}
		_, err := fmt.Fprintf(w, what, o.Shards, o.URL)
		return err
	})
}

func newStreamTrim(app *cli.App) *cobra.Command {
	var before string
	cmd := &cobra.Command{
		Use:   "trim STREAM --before TIME|SEQUENCE",
		Short: "Remove old records of a file: stream",
		Long: `Removes whole segments of which every record arrived before a time, or comes before a sequence number in its shard. The
segment that is written to stays, so some older records may. It can be run while the stream is published to and read: a
reader that needs what was removed is told so and does not go on in silence. Kinesis removes records by age alone.`,
		Example: `  synctl stream trim file:/var/lib/synctl/shop --before 2026-11-30T00:00:00Z
  synctl stream trim file:/var/lib/synctl/shop --before 4711420000000000000012345`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&before, "before", "", "time (RFC 3339) or sequence number before which records go (required)")
	output := cli.AddOutputFlag(cmd.Flags())
	cmd.RunE = app.Finite(func(ctx context.Context, r *cli.Run) error {
		return runStreamTrim(ctx, r, r.Args[0], before, output)
	})
	return cmd
}

func runStreamTrim(ctx context.Context, r *cli.Run, url, before string, output *cli.Output) error {
	at, err := parseBefore(before)
	if err != nil {
		return err
	}
	s, err := openStream(ctx, url, r.Log)
	if err != nil {
		return err
	}
	defer s.Close()
	var t file.Trimmed
	switch s := s.(type) {
	case *file.Stream:
		t, err = s.Trim(ctx, at)
	case *kinesis.Stream:
		err = s.Trim(ctx)
	default:
		err = errors.New("this kind of stream is not trimmed")
	}
	if err != nil {
		return err
	}
	result := struct {
		Segments int   `json:"segments"`
		Records  int64 `json:"records"`
		Bytes    int64 `json:"bytes"`
	}{t.Segments, t.Records, t.Bytes}
	return r.Result(output, result, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "removed %d segments: %s records, %s\n", t.Segments, cli.FormatCount(t.Records), cli.FormatBytes(t.Bytes))
		return err
	})
}

// parseBefore reads a time or a sequence number: the latter has digits alone.
func parseBefore(text string) (stream.Position, error) {
	if text != "" && strings.Trim(text, "0123456789") == "" {
		return stream.Position{Kind: stream.AtSequence, Sequence: text}, nil
	}
	var t cli.Time
	if err := t.Set(text); err != nil {
		return stream.Position{}, fault.New(fault.Usage, "Give --before a time such as 2026-11-30T00:00:00Z, or a sequence number of the shard.",
			"--before %s is neither a time nor a sequence number", strconv.Quote(text))
	}
	return stream.Position{Kind: stream.AtTime, Time: t.Time}, nil
}
