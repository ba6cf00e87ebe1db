package main

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"synctl/internal/bulk"
	"synctl/internal/bulk/bigquery"
	"synctl/internal/bulk/csv"
	"synctl/internal/bulk/ndjson"
	"synctl/internal/bulk/parquet"
	"synctl/internal/cli"
	"synctl/internal/fault"
)

// csvFlags are the flags that only CSV files have.
type csvFlags struct {
	delimiter, null string
	noHeader        bool
}

func (c *csvFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&c.delimiter, "csv-delimiter", ",", "character between values; \\t is a tab")
	fs.StringVar(&c.null, "csv-null", "", "what stands, without quotes, for null (default the empty value)")
	fs.BoolVar(&c.noHeader, "csv-no-header", false, "the files have no header; --columns names the columns in their order")
}

// openDataSet opens what --from names.
func openDataSet(ctx context.Context, r *cli.Run, o *bulkLoadOptions) (bulk.Source, error) {
	kind, rest, _ := strings.Cut(o.from, ":")
	if o.filter != "" && kind != "parquet" && kind != "bigquery" {
		return nil, fault.New(fault.Usage, "Leave --filter out, and drop rows with --transform.", "%s has no row filter", o.from)
	}
	switch {
	case kind == "parquet":
		return parquet.Open(rest, parquet.Options{Filter: o.filter})
	case kind == "bigquery":
		return bigquery.Open(ctx, o.from, bigquery.Options{Filter: o.filter, Streams: o.load.Readers, Log: r.Log})
	case kind == "csv":
		return openCSV(ctx, rest, o)
	case kind == "ndjson":
		return ndjson.Open(ctx, rest, nil, o.load.Columns)
	case o.from == "-":
		return ndjson.Open(ctx, "-", interruptible(ctx, r.In), o.load.Columns)
	}
	return nil, fault.New(fault.Usage, "Data sets are bigquery://PROJECT/DATASET/TABLE, parquet:GLOB, csv:GLOB, ndjson:GLOB, and - for NDJSON on stdin.",
		"--from %q names no data set", o.from)
}

func openCSV(ctx context.Context, glob string, o *bulkLoadOptions) (bulk.Source, error) {
	delimiter := o.csv.delimiter
	if delimiter == `\t` {
		delimiter = "\t"
	}
	if len(delimiter) != 1 {
		return nil, fault.New(fault.Usage, "Give one character, such as ';'.", "--csv-delimiter %q", o.csv.delimiter)
	}
	c := csv.Options{Delimiter: delimiter[0], Null: o.csv.null, NoHeader: o.csv.noHeader}
	if c.NoHeader {
		c.Names = o.load.Columns
		o.load.Columns = nil
	}
	return csv.Open(ctx, glob, c)
}

// interruptible reads from in until ctx ends: a read of a terminal or an idle pipe does not end by itself. The goroutine
// that hangs in such a read lasts as long as the process, which is about to exit then.
func interruptible(ctx context.Context, in io.Reader) io.Reader {
	type piece struct {
		data []byte
		err  error
	}
	pieces, taken := make(chan piece), make(chan struct{})
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := in.Read(buf)
			select {
			case pieces <- piece{buf[:n], err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
			select {
			case <-taken:
			case <-ctx.Done():
				return
			}
		}
	}()
	var left piece
	return readFunc(func(p []byte) (int, error) {
		if len(left.data) == 0 && left.err == nil {
			select {
			case left = <-pieces:
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		n := copy(p, left.data)
		if left.data = left.data[n:]; len(left.data) > 0 || left.err != nil {
			if len(left.data) == 0 {
				return n, left.err
			}
			return n, nil
		}
		select {
		case taken <- struct{}{}:
		case <-ctx.Done():
		}
		return n, nil
	})
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }
