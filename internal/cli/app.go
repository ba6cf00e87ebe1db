package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"synctl/internal/fault"
	"synctl/internal/pg"
	"synctl/internal/pipeline"
)

// App is one process's command line: it owns the streams and the flags that every command has.
type App struct {
	IO
	args    []string
	console *console
	started bool // a command's body has begun; errors before it are of usage

	config    string
	logFormat Choice
	logLevel  Choice
	progress  Choice

	// Tests put their own in.
	notify    func(chan<- os.Signal) (stop func()) // of SIGINT and SIGTERM
	catchPipe func() (stop func())                 // has SIGPIPE not kill us
}

// New makes the App for a command line (without the program's name).
func New(o IO, args []string) *App {
	return &App{
		IO: o, args: args, console: &console{w: o.Err},
		logFormat: NewChoice("text", "json"),
		logLevel:  Choice{Value: "info", Allowed: []string{"debug", "info", "warn", "error"}},
		progress:  NewChoice("auto", "bar", "plain", "none"),
		notify: func(ch chan<- os.Signal) func() {
			signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM)
			return func() { signal.Stop(ch) }
		},
		catchPipe: func() func() {
			// Not signal.Ignore: commands that we start would inherit it.
			ch := make(chan os.Signal, 1)
			signal.Notify(ch, syscall.SIGPIPE)
			return func() { signal.Stop(ch) }
		},
	}
}

// Attach gives root the flags that every command has, and the layers below them: environment and configuration file.
func (a *App) Attach(root *cobra.Command) {
	fs := root.PersistentFlags()
	fs.StringVar(&a.config, "config", "", "configuration file (default $XDG_CONFIG_HOME/synctl/config.yaml)")
	fs.Var(&a.logFormat, "log-format", "form of the log on stderr")
	fs.Var(&a.logLevel, "log-level", "least level that is logged")
	fs.Var(&a.progress, "progress", "progress on stderr; auto is a bar on a terminal, a line every 10s elsewhere")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return a.applyLayers(cmd) }
}

// Group is a command that only holds others. Called with a word that it does not know it is a usage error; cobra would
// print the help and exit 0, and a typo in a script would pass for success.
func Group(use, short, long string, children ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, Long: long, Annotations: map[string]string{"group": "true"}} // for the help's template
	g.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		msg := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			msg += "; did you mean " + strings.Join(near, " or ") + "?"
		}
		return fault.New(fault.Usage, fmt.Sprintf("See '%s --help'.", cmd.CommandPath()), "%s", msg)
	}
	g.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	g.SuggestionsMinimumDistance = 2
	g.AddCommand(children...)
	return g
}

// Run is one run of a command.
type Run struct {
	IO
	Log  *slog.Logger
	Args []string // what is left of the command line after flags
	// Drain is closed when we are asked to stop: read nothing more, finish and acknowledge what is in flight, return nil.
	// Nil (never ready) in a Finite run.
	Drain <-chan struct{}

	app  *App
	live *LiveFlags
}

// Func is a command's body. ctx ends when the run is forced to stop.
type Func func(ctx context.Context, r *Run) error

// Finite makes a RunE for a command that answers and ends: the first signal ends its ctx, and it exits with 130 or 143.
func (a *App) Finite(f Func) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error { return a.run(cmd, args, nil, f) }
}

// drainGrace is what a job gets beyond --drain-timeout to store and acknowledge what did become durable in time, before
// its ctx ends. Jobs keep the timeout themselves (pipeline.Options.DrainTimeout); this is for one that hangs.
const drainGrace = 3 * time.Second

// Live makes a RunE for a command that moves data until it is asked to stop: the first signal closes Drain; a second one, or a
// drain that outlasts --drain-timeout by drainGrace, ends ctx.
func (a *App) Live(l *LiveFlags, f Func) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error { return a.run(cmd, args, l, f) }
}

func (a *App) run(cmd *cobra.Command, args []string, live *LiveFlags, f Func) error {
	a.started = true
	// Without this a write to a stdout that nobody reads kills the process before it has acknowledged anything.
	defer a.catchPipe()()

	r := &Run{IO: a.IO, Log: a.logger(), Args: args, app: a, live: live}
	r.Err = a.console
	if a.OutIsTTY && a.ErrIsTTY {
		r.Out = sharedTerminal{a.console, a.Out}
	}
	if a.passwordInArgs() {
		r.Log.Warn("a password on the command line can be read by every user of this machine; use SYNCTL_FROM, SYNCTL_TO, PGPASSFILE or PGPASSWORD")
	}
	ctx, watch := a.watchSignals(cmd.Context(), r)
	err := f(ctx, r)
	asked, forced := watch()
	if forced == nil && asked != 0 && errors.Is(err, pipeline.ErrDrainTimeout) {
		forced = &stopped{signal: asked, live: true, timeout: true}
	}
	if err != nil && forced != nil {
		forced.err = err
		return forced
	}
	return err
}

func (a *App) passwordInArgs() bool {
	for _, arg := range a.args {
		if pg.DSN(arg).HasPassword() {
			return true
		}
	}
	return false
}

func (a *App) logger() *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(a.logLevel.Value)) // the flag allows only levels
	o := &slog.HandlerOptions{Level: level}
	if a.logFormat.Value == "json" {
		return slog.New(redactHandler{slog.NewJSONHandler(a.console, o)})
	}
	if a.ErrIsTTY {
		// Somebody is watching: the day and the zone would only push the message off the screen.
		o.ReplaceAttr = func(groups []string, attr slog.Attr) slog.Attr {
			if len(groups) == 0 && attr.Key == slog.TimeKey && attr.Value.Kind() == slog.KindTime {
				attr.Value = slog.StringValue(attr.Value.Time().Format(time.TimeOnly))
			}
			return attr
		}
	}
	return slog.New(redactHandler{slog.NewTextHandler(a.console, o)})
}

// watchSignals sets r.Drain and gives a ctx that ends when the run is forced. finish ends the watch and tells which signal asked
// for the drain, 0 for none, and whether the run was forced.
func (a *App) watchSignals(parent context.Context, r *Run) (ctx context.Context, finish func() (syscall.Signal, *stopped)) {
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithCancel(parent)
	w := &watch{signals: make(chan os.Signal, 2), quit: make(chan struct{}), log: r.Log}
	stop := a.notify(w.signals)
	if r.live != nil {
		w.drain, w.timeout = make(chan struct{}), r.live.DrainTimeout
		r.Drain = w.drain
	}
	done := make(chan *stopped, 1)
	go func() {
		forced := w.wait()
		if forced != nil {
			// From here a signal has its usual effect, so a command that hangs in its clean-up can still be stopped.
			stop()
			cancel()
		}
		done <- forced
	}()
	return ctx, func() (syscall.Signal, *stopped) {
		close(w.quit)
		forced := <-done
		stop()
		cancel()
		return w.asked, forced
	}
}

// watch waits for the signals of one run.
type watch struct {
	signals chan os.Signal
	quit    chan struct{} // the run has ended
	drain   chan struct{} // nil in a finite run
	timeout time.Duration
	log     *slog.Logger
	asked   syscall.Signal // the one that closed drain
}

// wait waits for what forces the run to stop; nil when the run ended by itself.
func (w *watch) wait() *stopped {
	var first syscall.Signal
	select {
	case <-w.quit:
		return nil
	case s := <-w.signals:
		first, _ = s.(syscall.Signal)
	}
	if w.drain == nil {
		return &stopped{signal: first}
	}
	w.log.Info("stopping: finishing what is in flight; a second signal stops at once", "signal", signalName(first), "drain_timeout", w.timeout)
	w.asked = first
	close(w.drain)
	timer := time.NewTimer(w.timeout + drainGrace)
	defer timer.Stop()
	select {
	case <-w.quit:
		return nil
	case s := <-w.signals:
		second, _ := s.(syscall.Signal)
		return &stopped{signal: second, live: true}
	case <-timer.C:
		return &stopped{signal: first, live: true, timeout: true}
	}
}
