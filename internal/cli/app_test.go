package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"synctl/internal/fault"
	"synctl/internal/ndjson"
	"synctl/internal/pipeline"
)

// runCommand runs one command with body f; after each delay the next signal arrives.
func runCommand(t *testing.T, live bool, f Func, args []string, signals ...os.Signal) (code int, stderr string) {
	t.Helper()
	var out bytes.Buffer
	app := New(IO{Err: &out, Out: &out, Getenv: func(string) string { return "" }}, args)
	app.notify = func(ch chan<- os.Signal) func() {
		for i, s := range signals {
			time.AfterFunc(time.Duration(i+1)*time.Second, func() { ch <- s })
		}
		return func() {}
	}
	app.catchPipe = func() func() { return func() {} } // the real one starts a goroutine for good, outside the test's bubble
	root := &cobra.Command{Use: "synctl"}
	app.Attach(root)
	cmd := &cobra.Command{Use: "job"}
	cmd.Flags().String("to", "", "")
	if live {
		cmd.RunE = app.Live(AddLiveFlags(cmd.Flags()), f)
	} else {
		cmd.RunE = app.Finite(f)
	}
	root.AddCommand(cmd, Group("group", "", "", &cobra.Command{Use: "child", Run: func(*cobra.Command, []string) {}}))
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
	c, err := root.ExecuteC()
	return app.Finish(c.CommandPath(), err), out.String()
}

func TestSignals(t *testing.T) {
	untilDrained := func(ctx context.Context, r *Run) error {
		select {
		case <-r.Drain:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	untilForced := func(ctx context.Context, r *Run) error {
		<-ctx.Done()
		return fmt.Errorf("write record: %w", ctx.Err())
	}
	for _, c := range []struct {
		name    string
		live    bool
		f       Func
		signals []os.Signal
		code    int
		stderr  string
		after   time.Duration
	}{
		{"drained", true, untilDrained, []os.Signal{syscall.SIGTERM}, 0, "finishing what is in flight; a second signal stops at once\" signal=SIGTERM", time.Second},
		{"second signal", true, untilForced, []os.Signal{syscall.SIGTERM, syscall.SIGINT}, 130, "error: forced to stop by a second signal\nnext: Run the same command again", 2 * time.Second},
		{"second SIGTERM", true, untilForced, []os.Signal{syscall.SIGINT, syscall.SIGTERM}, 143, "forced to stop", 2 * time.Second},
		{"drain timeout", true, untilForced, []os.Signal{syscall.SIGTERM}, 143, "drain after SIGTERM took longer than --drain-timeout", 29 * time.Second},
		{"drain timeout that the job kept", true, func(_ context.Context, r *Run) error {
			<-r.Drain
			return fmt.Errorf("publish: %w", pipeline.ErrDrainTimeout)
		}, []os.Signal{syscall.SIGTERM}, 143, "drain after SIGTERM took longer than --drain-timeout: publish: ", time.Second},
		{"finite", false, untilForced, []os.Signal{syscall.SIGINT}, 130, "error: interrupted by SIGINT\n", time.Second},
		{"finite SIGTERM", false, untilForced, []os.Signal{syscall.SIGTERM}, 143, "error: interrupted by SIGTERM\n", time.Second},
		{"failed while draining", true, func(_ context.Context, r *Run) error {
			<-r.Drain
			return fault.New(fault.Unreachable, "Start it.", "connection lost")
		}, []os.Signal{syscall.SIGTERM}, 3, "synctl: error: connection lost\nnext: Start it.\n", time.Second},
		{"done before the force was noticed", true, func(ctx context.Context, r *Run) error {
			<-ctx.Done()
			return nil
		}, []os.Signal{syscall.SIGTERM, syscall.SIGTERM}, 0, "", 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				code, stderr := runCommand(t, c.live, c.f, []string{"job"}, c.signals...)
				if code != c.code || !strings.Contains(stderr, c.stderr) {
					t.Errorf("exit code %d, want %d; stderr:\n%s\nwant %q in it", code, c.code, stderr, c.stderr)
				}
				if d := time.Since(began); d != c.after {
					t.Errorf("ended after %s, want %s", d, c.after)
				}
			})
		})
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		name   string
		args   []string
		err    error
		code   int
		stderr string
	}{
		{"done", []string{"job"}, nil, 0, ""},
		{"reader gone", []string{"job"}, fmt.Errorf("write: %w", ndjson.ErrReaderGone), 0, ""},
		{"plain error", []string{"job"}, errors.New("disk is full"), 1, "synctl: error: disk is full\n"},
		{"class survives wrapping", []string{"job"}, fmt.Errorf("open slot: %w", fault.New(fault.Check, "Add --create.", "no slot")), 4, "synctl: error: open slot: no slot\nnext: Add --create.\n"},
		{"error of several lines", []string{"job"}, errors.Join(errors.New("connect: failed:\n\th: refused\n\th: refused\n"), errors.New("close: lost")), 1,
			"synctl: error: connect: failed: h: refused; close: lost\n"},
		{"dead letters", []string{"job"}, fault.New(fault.DeadLetters, "Read f.", "3 records"), 5, "synctl: error: 3 records\nnext: Read f.\n"},
		{"secret in an error", []string{"job"}, errors.New("dial postgres://u:s3cr3t@h/d"), 1, "synctl: error: dial postgres://u:***@h/d\n"},
		{"unknown flag", []string{"job", "--nope"}, nil, 2, "synctl: error: unknown flag: --nope\nnext: See 'synctl job --help'.\n"},
		{"bad value with a secret", []string{"job", "--log-level=postgres://u:s3cr3t@h/d"}, nil, 2, "u:***@h/d"},
		{"unknown command", []string{"nope"}, nil, 2, "synctl: error: unknown command \"nope\" for \"synctl\"\n"},
		{"unknown command of a group", []string{"group", "chlid"}, nil, 2, "unknown command \"chlid\" for \"synctl group\"; did you mean child?\nnext: See 'synctl group --help'."},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stderr := runCommand(t, true, func(context.Context, *Run) error { return c.err }, c.args)
			if code != c.code || !strings.Contains(stderr, c.stderr) || c.stderr == "" && stderr != "" {
				t.Errorf("exit code %d, want %d; stderr:\n%s\nwant:\n%s", code, c.code, stderr, c.stderr)
			}
			if strings.Contains(stderr, secret) {
				t.Errorf("stderr shows the secret: %s", stderr)
			}
		})
	}
}

func TestPasswordInArgsIsWarnedOf(t *testing.T) {
	none := func(context.Context, *Run) error { return nil }
	if _, stderr := runCommand(t, false, none, []string{"job", "--to", "postgres://u:s3cr3t@h/d"}); !strings.Contains(stderr, "level=WARN") || strings.Contains(stderr, secret) {
		t.Errorf("stderr: %s", stderr)
	}
	if _, stderr := runCommand(t, false, none, []string{"job", "--to", "postgres://u@h/d"}); stderr != "" {
		t.Errorf("a warning without a password: %s", stderr)
	}
}

func TestConfirm(t *testing.T) {
	for _, c := range []struct {
		name, flag, typed string
		tty, ok           bool
	}{
		{"flag", "shop", "", false, true},
		{"wrong flag", "shp", "shop\n", true, false},
		{"no terminal", "", "shop\n", false, false},
		{"typed", "", "shop\n", true, true},
		{"typed without the end of the line", "", "shop", true, true},
		{"typed wrongly", "", "y\n", true, false},
		{"nothing typed", "", "", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			r := &Run{IO: IO{In: strings.NewReader(c.typed), Err: &out, InIsTTY: c.tty, ErrIsTTY: c.tty}}
			err := r.Confirm(c.flag, "shop", "Slot shop and its place in the log will be lost.")
			if (err == nil) != c.ok {
				t.Fatalf("error %v, want ok %v", err, c.ok)
			}
			if err != nil && fault.ClassOf(err) != fault.Usage {
				t.Errorf("class %d, want usage", fault.ClassOf(err))
			}
		})
	}
}

func TestResultAndTable(t *testing.T) {
	var out bytes.Buffer
	r := &Run{IO: IO{Out: &out}}
	human := func(w io.Writer) error {
		return Table(w, []string{"NAME", "ROWS"}, [][]string{{"a", "10"}, {"evil\x1b[2J", "1"}})
	}
	o := &Output{NewChoice("text", "json")}
	if err := r.Result(o, nil, human); err != nil {
		t.Fatal(err)
	}
	if want := "NAME           ROWS\na              10\n\"evil\\x1b[2J\"  1\n"; out.String() != want {
		t.Errorf("table is\n%q, want\n%q", out.String(), want)
	}
	out.Reset()
	o.Value = "json"
	if err := r.Result(o, map[string]string{"a": "<b>"}, nil); err != nil || out.String() != "{\"a\":\"<b>\"}\n" {
		t.Errorf("JSON is %q, %v", out.String(), err)
	}
}

func TestResultToAReaderThatIsGone(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	read.Close()
	defer write.Close()
	r := &Run{IO: IO{Out: write}}
	if err := r.Result(&Output{Choice{Value: "json"}}, 1, nil); !errors.Is(err, ndjson.ErrReaderGone) {
		t.Errorf("error is %v, want ErrReaderGone", err)
	}
}
