package main

import (
	"github.com/spf13/cobra"

	"synctl/internal/cli"
)

// run executes one command line and returns its exit code.
func run(io cli.IO, args []string) int {
	app := cli.New(io, args)
	root := newRoot(app)
	root.SetArgs(args)
	root.SetIn(io.In)
	root.SetOut(io.Out)
	root.SetErr(io.Err)
	cmd, err := root.ExecuteC()
	return app.Finish(cmd.CommandPath(), err)
}

func newRoot(app *cli.App) *cobra.Command {
	root := &cobra.Command{
		Use:   "synctl",
		Short: "Keep data in step between systems",
		Long: `synctl keeps data in step between systems: it watches a PostgreSQL database's changes, publishes them to a durable
stream, and replays a stream from any position. Every command reads or writes the same records, one JSON object a line, so
commands can be joined by pipes. stdout carries data alone; everything for people goes to stderr.`,
		Example: `  # Watch committed changes as they happen
  synctl cdc tail --from postgres://app@localhost/shop --table 'public.*'

  # Publish them to a stream, and go on where it stopped when it is started again
  synctl cdc publish --from postgres://app@localhost/shop --table 'public.*' --slot shop --create --to file:/var/lib/shop-stream

  # Bring another database up to date from the stream
  synctl replay --from file:/var/lib/shop-stream --to postgres://app@replica/shop --checkpoint shop`,
		Version: buildVersion().String(),
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetHelpTemplate(helpTemplate)
	root.SetUsageTemplate(usageTemplate)
	app.Attach(root)
	root.AddCommand(
		newCDCGroup(app),
		newStreamGroup(app),
		newReplay(app),
		newCheckpoint(app),
		newBulk(app),
		newSwap(app),
		newVersion(app),
		newExitCodesTopic(),
		newEnvironmentTopic(),
	)
	return root
}
