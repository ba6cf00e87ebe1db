package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spf13/pflag"

	"synctl/internal/fault"
)

// Output is the value of --output: for people, or one JSON object.
type Output struct{ Choice }

// AddOutputFlag adds --output text|json.
func AddOutputFlag(fs *pflag.FlagSet) *Output {
	o := &Output{NewChoice("text", "json")}
	fs.Var(&o.Choice, "output", "form of the result on stdout")
	return o
}

// Result prints a finite command's result on stdout: v as one JSON object when --output json asks for it, what text
// writes otherwise.
func (r *Run) Result(o *Output, v any, text func(w io.Writer) error) error {
	w := bufio.NewWriter(r.Out)
	if o.Value == "json" {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			return readerGone(fmt.Errorf("write result: %w", err))
		}
	} else if err := text(w); err != nil {
		return readerGone(fmt.Errorf("write result: %w", err))
	}
	if err := w.Flush(); err != nil {
		return readerGone(fmt.Errorf("write result: %w", err))
	}
	return nil
}

// Table writes rows under a header, columns aligned. Cells with control characters are quoted: a name must not be able to
// move the terminal's cursor.
func Table(w io.Writer, header []string, rows [][]string) error {
	var out bytes.Buffer
	t := tabwriter.NewWriter(&out, 0, 8, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		for i, cell := range row {
			if strings.ContainsFunc(cell, unicode.IsControl) {
				cell = strconv.Quote(cell)
			}
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, cell)
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	// Cells that are empty at the end of a row leave the padding of those before them.
	for line := range strings.Lines(out.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// Confirm makes sure that name is really meant before something is lost: by the flag --confirm NAME, else by asking on a
// terminal for the name to be typed. consequence is a sentence.
func (r *Run) Confirm(confirmFlag, name, consequence string) error {
	if confirmFlag == name {
		return nil
	}
	if confirmFlag != "" {
		return fault.New(fault.Usage, "Give the very name, or leave --confirm out to be asked.", "--confirm %q is not %q", confirmFlag, name)
	}
	if !r.InIsTTY || !r.ErrIsTTY {
		return fault.New(fault.Usage, fmt.Sprintf("Add --confirm %s.", name), "%s There is no terminal to ask on", consequence)
	}
	fmt.Fprintf(r.Err, "%s\nType %s to go on: ", consequence, name)
	answer, err := bufio.NewReader(r.In).ReadString('\n')
	if err != nil && err != io.EOF {
		return fmt.Errorf("read answer: %w", err)
	}
	if strings.TrimSpace(answer) != name {
		return fault.New(fault.Usage, "Nothing was changed.", "the answer is not %q", name)
	}
	return nil
}
