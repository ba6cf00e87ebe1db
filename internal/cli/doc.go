// Package cli is what every command shares: the three streams, flags and their layers, logging, progress, metrics,
// signals, exit codes.
//
// Invariants: stdout is data and nothing else (promise 10); an error ends with the next step (promise 11); secrets are
// redacted in logs and errors (promise 9); the first SIGINT or SIGTERM drains, the second forces (promise 7). It knows no
// job: those are in cdc, replay, bulk and swap, and cmd wires them.
//
// A command is a function that makes a cobra.Command. Its flags go into an options struct; the body gets a Run:
//
//	func newCopy(app *cli.App) *cobra.Command {
//		var from string
//		var queue = cli.Size(16 << 20)
//		cmd := &cobra.Command{Use: "copy", Short: "…", Long: "…", Example: "…", Args: cobra.NoArgs}
//		cmd.Flags().StringVar(&from, "from", "", "where data comes from")
//		cmd.Flags().Var(&queue, "queue-bytes", "bytes in memory between source and sink")
//		live := cli.AddLiveFlags(cmd.Flags()) // --drain-timeout, --metrics-addr
//		cmd.RunE = app.Live(live, func(ctx context.Context, r *cli.Run) error {
//			// ctx ends when we are forced; r.Drain is closed when we are asked to finish what is in flight.
//			job := openJob(ctx, from, int64(queue), live.DrainTimeout, r.Log)
//			stop, err := r.Report(job.Snapshot) // progress on stderr, and /metrics when asked for
//			if err != nil {
//				return err
//			}
//			defer stop()
//			return job.Run(ctx, r.Drain)
//		})
//		return cmd
//	}
//
// A command that answers and ends is wrapped in App.Finite instead: it has no Drain, and the first signal ends its ctx.
// Its result goes out by Run.Result, which knows --output. Every flag of every command can also be given as SYNCTL_NAME
// in the environment or in the configuration file; a command need not do anything for it.
package cli
