package pg

import (
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"postgres://u:s3cr3t@h:5432/d", "postgres://u:***@h:5432/d"},
		{"postgres://:s3cr3t@h/d", "postgres://:***@h/d"},
		{"https://u:s3cr3t@hook.example/x", "https://u:***@hook.example/x"},
		{"postgres://u:a/s3cr3t@b@h/d", "postgres://u:***@h/d"},
		{`dial "postgres://u:s3cr3t@h/d": refused`, `dial "postgres://u:***@h/d": refused`},
		{"host=h password=s3cr3t user=u", "host=h password=*** user=u"},
		{`password='it\'s s3cr3t' host=h`, "password=*** host=h"},
		{"postgres://h/d?password=s3cr3t&sslmode=disable", "postgres://h/d?password=***"},
		{`password=a"s3cr3t user=u`, "password=*** user=u"},
		{"password=a&s3cr3t user=u", "password=*** user=u"},
		{"password = 's3cr3t", "password = ***"},
		{"sslpassword=s3cr3t", "sslpassword=***"},
		{"postgres://h:5432/d?application_name=a@b", "postgres://h:5432/d?application_name=a@b"},
		{"kinesis://orders?endpoint=http://127.0.0.1:4602", "kinesis://orders?endpoint=http://127.0.0.1:4602"},
		{"bigquery://p/d/t@2026", "bigquery://p/d/t@2026"},
	} {
		got := Redact(c.in)
		if strings.Contains(got, "s3cr3t") {
			t.Errorf("Redact(%q) = %q shows the secret", c.in, got)
		}
		if c.want != "" && got != c.want {
			t.Errorf("Redact(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}
