package main

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"synctl/internal/cli"
)

var updateDocs = flag.Bool("update-docs", false, "write the generated documents instead of comparing them")

// TestDocsAreCurrent holds the committed reference and manual pages against the commands. It writes them with
// -update-docs: 'make docs'.
func TestDocsAreCurrent(t *testing.T) {
	const docs = "../../docs"
	want, err := generateDocs()
	if err != nil {
		t.Fatal(err)
	}
	var stale []string
	for _, dir := range []string{"cli", "man"} {
		entries, _ := os.ReadDir(filepath.Join(docs, dir))
		for _, e := range entries {
			if name := filepath.Join(dir, e.Name()); want[name] == nil {
				stale = append(stale, name)
			}
		}
	}
	if *updateDocs {
		for name, text := range want {
			path := filepath.Join(docs, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range stale {
			if err := os.Remove(filepath.Join(docs, name)); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	for name, text := range want {
		if have, err := os.ReadFile(filepath.Join(docs, name)); err != nil || !bytes.Equal(have, text) {
			t.Errorf("docs/%s is not what the commands say; run 'make docs'", name)
		}
	}
	for _, name := range stale {
		t.Errorf("docs/%s belongs to no command; run 'make docs'", name)
	}
}

// generateDocs gives every generated document by its path under docs. It depends on nothing but the commands: no date,
// no environment.
func generateDocs() (map[string][]byte, error) {
	files := map[string][]byte{}
	root := newRoot(cli.New(cli.IO{Getenv: func(string) string { return "" }}, nil))
	root.DisableAutoGenTag = true
	root.Version = "" // of this very build
	root.InitDefaultHelpCmd()
	var index bytes.Buffer
	index.WriteString("# Commands\n\n")
	if err := generateCommand(root, files, &index); err != nil {
		return nil, err
	}
	for _, topic := range root.Commands() {
		if topic.IsAdditionalHelpTopicCommand() {
			files[topic.Name()+".md"] = topicDocument(topic)
		}
	}
	files["cli/README.md"] = index.Bytes()
	return files, nil
}

func generateCommand(cmd *cobra.Command, files map[string][]byte, index *bytes.Buffer) error {
	cmd.DisableAutoGenTag = true
	base := strings.ReplaceAll(cmd.CommandPath(), " ", "_")
	var md, man bytes.Buffer
	if err := doc.GenMarkdown(cmd, &md); err != nil {
		return err
	}
	never := time.Time{}
	header := &doc.GenManHeader{Section: "1", Source: "synctl", Manual: "synctl", Date: &never}
	if err := doc.GenMan(cmd, header, &man); err != nil {
		return err
	}
	files["cli/"+base+".md"] = md.Bytes()
	files["man/"+strings.ReplaceAll(base, "_", "-")+".1"] = bytes.Replace(man.Bytes(), []byte(never.Format("Jan 2006")), nil, 1)
	index.WriteString("- [" + cmd.CommandPath() + "](" + base + ".md): " + cmd.Short + "\n")
	children := slices.Clone(cmd.Commands())
	slices.SortFunc(children, func(a, b *cobra.Command) int { return strings.Compare(a.Name(), b.Name()) })
	for _, child := range children {
		if child.IsAvailableCommand() && !child.IsAdditionalHelpTopicCommand() {
			if err := generateCommand(child, files, index); err != nil {
				return err
			}
		}
	}
	return nil
}

// topicDocument is a help topic as Markdown: its paragraphs, and its indented blocks as they stand.
func topicDocument(topic *cobra.Command) []byte {
	var b bytes.Buffer
	b.WriteString("# " + topic.Short + "\n\n(`synctl help " + topic.Name() + "` prints this page.)\n")
	block := false
	for _, paragraph := range strings.Split(topic.Long, "\n\n") {
		indented := strings.HasPrefix(paragraph, "  ")
		if block && !indented {
			b.WriteString("```\n")
		}
		if !block && indented {
			b.WriteString("\n```text")
		}
		b.WriteString("\n" + paragraph + "\n")
		block = indented
	}
	if block {
		b.WriteString("```\n")
	}
	return b.Bytes()
}

// TestGuaranteesNameRealTests keeps docs/guarantees.md honest: a test that it names and that was renamed or removed holds nothing.
func TestGuaranteesNameRealTests(t *testing.T) {
	text, err := os.ReadFile("../../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Za-z0-9_]+)`").FindAllStringSubmatch(string(text), -1)
	if len(named) == 0 {
		t.Fatal("no test is named")
	}
	var sources bytes.Buffer
	err = filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		sources.Write(source)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range named {
		if !bytes.Contains(sources.Bytes(), []byte("\nfunc "+n[1]+"(")) {
			t.Errorf("docs/guarantees.md names %s, which does not exist", n[1])
		}
	}
}
