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

func TestRedact(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"postgres://u:s3cr3t@h:5432/d", "postgres://u:***@h:5432/d"},
		{"postgres://:s3cr3t@h/d", "postgres://:***@h/d"},
		{"https://u:s3cr3t@hook.example/x", "https://u:***@hook.example/x"},
		{"postgres://u:a/s3cr3t@b@h/d", "postgres://u:***@h/d"},
		{`dial "postgres://u:s3cr3t@h/d": refused`, `dial "postgres://u:***@h/d": refused`},
		{"host=h password=s3cr3t user=u", "host=h password=*** user=u"},
		{`password='it\'s s3cr3t' host=h`, "password=*** host=h"},
		{"postgres://h/d?password=s3cr3t&sslmode=disable", "postgres://h/d?password=***&sslmode=disable"},
		{"postgres://h:5432/d?application_name=a@b", "postgres://h:5432/d?application_name=a@b"},
		{"kinesis://orders?endpoint=http://127.0.0.1:4602", "kinesis://orders?endpoint=http://127.0.0.1:4602"},
		{"bigquery://p/d/t@2026", "bigquery://p/d/t@2026"},
	} {
		got := Redact(c.in)
		if strings.Contains(got, secret) {
			t.Errorf("Redact(%q) = %q shows the secret", c.in, got)
		}
		if c.want != "" && got != c.want {
			t.Errorf("Redact(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

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
