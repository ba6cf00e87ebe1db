package bulk

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"synctl/internal/bulk/convert"
	"synctl/internal/fault"
	"synctl/internal/record"
)

// Glob gives the files that a pattern matches, in order; none is a fault.
func Glob(kind, pattern string) ([]string, error) {
	if info, err := os.Stat(pattern); err == nil && !info.IsDir() {
		return []string{pattern}, nil // a name with brackets in it that means itself
	}
	matches, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fault.New(fault.Usage, "Write a pattern such as data/part-*."+kind+".", "pattern %q: %w", pattern, err)
	}
	var files []string
	for _, m := range matches {
		if info, err := os.Stat(m); err == nil && !info.IsDir() && !strings.HasPrefix(filepath.Base(m), ".") {
			files = append(files, m)
		}
	}
	if len(files) == 0 {
		return nil, fault.New(fault.Usage, "Check the path; a pattern needs quotes so that the shell leaves it alone.", "no file matches %s:%s", kind, pattern)
	}
	return files, nil
}

// WholeArrow renders rows of an Arrow batch as JSON objects.
func WholeArrow(rb arrow.RecordBatch) func(dst []byte, i int) []byte {
	return func(dst []byte, i int) []byte {
		dst = append(dst, '{')
		for k := range int(rb.NumCols()) {
			if k > 0 {
				dst = append(dst, ',')
			}
			dst = append(record.AppendString(dst, rb.ColumnName(k)), ':')
			mark := len(dst)
			var err error
			if dst, err = convert.AppendJSON(dst, rb.Column(k), i); err != nil {
				// What has no JSON form goes as what Arrow prints of it; the reason in the line says what is the matter.
				dst = record.AppendString(dst[:mark], strings.ToValidUTF8(rb.Column(k).ValueStr(i), "\uFFFD"))
			}
		}
		return append(dst, '}')
	}
}
