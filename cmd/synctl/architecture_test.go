package main

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pkg is what the rules need of 'go list -json'.
type pkg struct {
	ImportPath, Dir, Name     string
	GoFiles, Imports          []string
	TestImports, XTestImports []string
}

func listPackages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Name,GoFiles,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); err == io.EOF {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// room is the part of the house that an import path belongs to: internal/stream/file is in stream. Empty for other modules.
func room(path string) string {
	if rest, ok := strings.CutPrefix(path, "synctl/internal/"); ok {
		name, _, _ := strings.Cut(rest, "/")
		return name
	}
	if rest, ok := strings.CutPrefix(path, "synctl/"); ok {
		name, _, _ := strings.Cut(rest, "/")
		return name
	}
	return ""
}

// arrows are the rooms that each room may import, beside itself. A room that is not here fails the test: whoever adds
// one says where it stands.
var arrows = map[string][]string{
	"fault":    {},
	"record":   {"fault"},
	"pipeline": {"record", "fault"},
	"pg":       {"record", "fault"},
	"ndjson":   {"pipeline", "record", "fault"},
	"stream":   {"pipeline", "pg", "record", "fault"},
	"sink":     {"ndjson", "stream", "pipeline", "pg", "record", "fault"},
	"cdc":      {"ndjson", "stream", "sink", "pipeline", "pg", "record", "fault"},
	"bulk":     {"ndjson", "stream", "sink", "pipeline", "pg", "record", "fault"},
	"replay":   {"ndjson", "stream", "sink", "pipeline", "pg", "record", "fault"},
	"swap":     {"pg", "record", "fault"},
	"cli":      {"ndjson", "pipeline", "pg", "record", "fault"},
	"cmd":      {"cli", "cdc", "bulk", "replay", "swap", "sink", "stream", "ndjson", "pipeline", "pg", "record", "fault"},
	"testkit":  {"stream", "ndjson", "pipeline", "pg", "record", "fault"},
	"scripts":  {},
}

func TestImportsPointDown(t *testing.T) {
	pkgs := listPackages(t)
	if len(pkgs) < 5 {
		t.Fatalf("go list knows only %d packages", len(pkgs))
	}
	for _, p := range pkgs {
		from := room(p.ImportPath)
		allowed, known := arrows[from]
		if !known {
			t.Errorf("%s: room %q has no place in arrows", p.ImportPath, from)
			continue
		}
		for _, i := range p.Imports {
			if to := room(i); to != "" && to != from && !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s: %s may import only %v", p.ImportPath, i, from, allowed)
			}
			if from != "cmd" && strings.HasPrefix(i, "github.com/spf13/cobra") && from != "cli" {
				t.Errorf("%s imports cobra: the command line is known to cmd and cli alone", p.ImportPath)
			}
		}
		// A test may wire things together, but not two jobs.
		jobs := []string{"cdc", "bulk", "replay", "swap"}
		for _, i := range append(p.TestImports, p.XTestImports...) {
			if to := room(i); to != from && slices.Contains(jobs, from) && slices.Contains(jobs, to) {
				t.Errorf("a test of %s imports %s: what needs two jobs is tested in cmd", p.ImportPath, i)
			}
		}
	}
}

func TestPackageNames(t *testing.T) {
	for _, p := range listPackages(t) {
		for _, part := range append(strings.Split(p.ImportPath, "/"), p.Name) {
			switch part {
			case "util", "utils", "common", "types", "models", "helpers", "misc":
				t.Errorf("%s: a package named %s says nothing about what it holds", p.ImportPath, part)
			}
		}
	}
}

// TestNoHiddenEffects finds os.Exit and log.Fatal outside of main packages, which skip every deferred clean-up, and init functions,
// which run whether they are wanted or not.
func TestNoHiddenEffects(t *testing.T) {
	for _, p := range listPackages(t) {
		for _, name := range p.GoFiles {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					if n.Name.Name == "init" && n.Recv == nil {
						t.Errorf("%s: init function", fset.Position(n.Pos()))
					}
				case *ast.SelectorExpr:
					x, _ := n.X.(*ast.Ident)
					if x == nil {
						break
					}
					call := x.Name + "." + n.Sel.Name
					ends := call == "os.Exit" || x.Name == "log" && strings.HasPrefix(n.Sel.Name, "Fatal")
					// testkit.Main is a TestMain: its caller is the testing package.
					if ends && p.Name != "main" && room(p.ImportPath) != "testkit" {
						t.Errorf("%s: %s outside of a main package", fset.Position(n.Pos()), call)
					}
				}
				return true
			})
		}
	}
}

func TestEveryPackageHasAPurpose(t *testing.T) {
	for _, p := range listPackages(t) {
		documented := false
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			documented = documented || file.Doc != nil
		}
		if !documented && len(p.GoFiles) > 0 {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}
