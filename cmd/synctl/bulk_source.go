package main

import (
	"context"
	"strings"

	"github.com/spf13/pflag"

	"synctl/internal/bulk"
	"synctl/internal/bulk/parquet"
	"synctl/internal/cli"
	"synctl/internal/fault"
)

// csvFlags are the flags that only CSV files have.
type csvFlags struct{}

func (c *csvFlags) add(fs *pflag.FlagSet) {}

// openDataSet opens what --from names.
func openDataSet(ctx context.Context, r *cli.Run, o *bulkLoadOptions) (bulk.Source, error) {
	kind, rest, _ := strings.Cut(o.from, ":")
	switch {
	case kind == "parquet":
		return parquet.Open(rest, parquet.Options{Filter: o.filter})
	}
	return nil, fault.New(fault.Usage, "Data sets are bigquery://PROJECT/DATASET/TABLE, parquet:GLOB, csv:GLOB, ndjson:GLOB, and - for NDJSON on stdin.",
		"--from %q names no data set", o.from)
}
