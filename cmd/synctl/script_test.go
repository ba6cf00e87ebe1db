package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"synctl/internal/testkit"
)

// clusterRun stops the shared PostgreSQL when the tests are over, before testscript.Main exits.
type clusterRun struct{ m *testing.M }

func (c clusterRun) Run() int { return testkit.Run(c.m) }

func TestMain(m *testing.M) {
	testscript.Main(clusterRun{m}, map[string]func(){
		"synctl": main,
		"sql":    sqlMain,
	})
}

// TestScripts runs testdata/script/*.txtar against the real command, one process each. Beside testscript's own
// commands a script has
//
//	database NAME      makes an empty database and puts its URL into the environment variable NAME
//	exec sql DSN SQL…  runs the statements and prints their rows, columns separated by tabs
//	exits CODE PROGRAM ARGS…  is exec for a program that must end with that very code
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	// Started here and not by the first script that asks: a failure must end this test from its own goroutine.
	cluster := testkit.Shared(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			env.Setenv("HOME", home)
			env.Setenv("TZ", "UTC")
			return os.Mkdir(home, 0o755)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"database": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) != 1 {
					ts.Fatalf("usage: database NAME")
				}
				ts.Setenv(args[0], cluster.Database(t))
			},
			"exits": exits,
		},
	})
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

// sqlMain is the program that scripts know as sql.
func sqlMain() {
	if err := runSQL(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sql:", err)
		os.Exit(1)
	}
}

func runSQL(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: sql DSN STATEMENT...")
	}
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, args[0])
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, statement := range args[1:] {
		results, err := conn.PgConn().Exec(ctx, statement).ReadAll()
		if err != nil {
			return err
		}
		for _, result := range results {
			for _, row := range result.Rows {
				cells := make([]string, len(row))
				for i, cell := range row {
					cells[i] = string(cell)
				}
				fmt.Println(strings.Join(cells, "\t"))
			}
		}
	}
	return nil
}
