package cli

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"synctl/internal/pg"
)

const secret = "s3cr3t"

type hidden struct{ URL string }

func (h hidden) LogValue() slog.Value { return slog.StringValue(h.URL) }

func TestLogIsRedacted(t *testing.T) {
	const url = "postgres://u:" + secret + "@h/d"
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		app := New(IO{Err: &out}, nil)
		app.logFormat.Value = format
		log := app.logger()
		log.Info("connect to "+url, "string", url, "error", fmt.Errorf("dial: %w", errors.New(url)), "dsn", pg.DSN(url),
			"struct", struct{ A string }{url}, "pointer", &hidden{url}, "valuer", hidden{url}, "slice", []string{url}, "map", map[string]string{"a": url},
			slog.Group("g", "inner", url), "bytes", []byte("password="+secret))
		log.With("with", url).WithGroup("g").Info("m", "a", url)
		if strings.Contains(out.String(), secret) {
			t.Errorf("%s log shows the secret:\n%s", format, out.String())
		}
		if n := strings.Count(out.String(), "***"); n < 11 {
			t.Errorf("%s log has %d redactions, want one for each attribute:\n%s", format, n, out.String())
		}
	}
}
