package cli

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"

	"synctl/internal/pg"
)

var (
	// Up to the last @ of the word: a password that should have been percent-encoded may hold / and @ itself.
	userinfo   = regexp.MustCompile("([A-Za-z][A-Za-z0-9+.-]*://[^:/?#@\\s]*):([^\\s\"'`]*)@")
	portAndMax = regexp.MustCompile(`^[0-9]{1,5}[/?]`)
)

// Redact replaces what must not be printed in s: passwords in connection strings and in any URL (promise 9).
func Redact(s string) string {
	if strings.Contains(s, "://") {
		s = userinfo.ReplaceAllStringFunc(s, func(m string) string {
			parts := userinfo.FindStringSubmatch(m)
			if portAndMax.MatchString(parts[2]) { // host:5432/path?x=a@b has no password here
				return m
			}
			return parts[1] + ":***@"
		})
	}
	return pg.Redact(s)
}

// redactHandler redacts messages and attributes before the handler below formats them, whatever type they have.
type redactHandler struct{ next slog.Handler }

func (h redactHandler) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

func (h redactHandler) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, Redact(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(redactAttr(a))
		return true
	})
	return h.next.Handle(ctx, clean)
}

func (h redactHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = redactAttr(a)
	}
	return redactHandler{h.next.WithAttrs(clean)}
}

func (h redactHandler) WithGroup(name string) slog.Handler {
	return redactHandler{h.next.WithGroup(name)}
}

// redactAttr goes by the text that would be printed, so errors, Stringers and structs are covered too.
func redactAttr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString:
		return slog.String(a.Key, Redact(v.String()))
	case slog.KindGroup:
		group := v.Group()
		clean := make([]slog.Attr, len(group))
		for i, g := range group {
			clean[i] = redactAttr(g)
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(clean...)}
	case slog.KindAny:
		if e, ok := v.Any().(error); ok {
			return slog.String(a.Key, Redact(e.Error()))
		}
		return slog.String(a.Key, Redact(fmt.Sprint(v.Any())))
	}
	return slog.Attr{Key: a.Key, Value: v}
}
