package pg

import (
	"regexp"
	"strings"
)

var (
	// Up to the last @ of the word: a password that should have been percent-encoded may hold / and @ itself.
	userinfo = regexp.MustCompile("([A-Za-z][A-Za-z0-9+.-]*://[^:/?#@\\s]*):([^\\s\"'`]*)@")
	port     = regexp.MustCompile(`^[0-9]{1,5}[/?]`)
	// Unquoted, a value ends at the next blank and may hold any quote or &. In a URL that takes the parameters after it
	// too: rather too much than half a password.
	keywordPassword = regexp.MustCompile(`(?i)(password\s*=\s*)('(?:[^'\\]|\\.)*'?|[^\s']\S*)`)
)

// Redact replaces the passwords in s, wherever connection strings or other URLs may occur in it (promise 9).
func Redact(s string) string {
	if strings.Contains(s, "://") {
		s = userinfo.ReplaceAllStringFunc(s, func(m string) string {
			parts := userinfo.FindStringSubmatch(m)
			if port.MatchString(parts[2]) { // host:5432/path?x=a@b has no password here
				return m
			}
			return parts[1] + ":***@"
		})
	}
	return keywordPassword.ReplaceAllString(s, "${1}***")
}
