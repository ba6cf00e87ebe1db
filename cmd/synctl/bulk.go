package main

import (
	"github.com/spf13/cobra"

	"synctl/internal/cli"
)

func newBulk(app *cli.App) *cobra.Command {
	return cli.Group("bulk", "Move a data set into PostgreSQL",
		`Moves a data set, read in parallel, through a bounded queue by COPY into an unlogged staging table. 'synctl swap' then
makes the staging table live.`,
		newBulkLoad(app), newBulkStatus(app))
}
