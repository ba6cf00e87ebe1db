package kinesis

import (
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"synctl/internal/fault"
)

// Options say which stream, and how it is reached.
type Options struct {
	Name     string // the stream's name
	ARN      string // empty: the stream is of the account whose credentials are used
	Region   string // empty: the SDK's chain (AWS_REGION, profile)
	Profile  string // a profile of ~/.aws/config; empty: the SDK's chain (AWS_PROFILE, default)
	Endpoint string // of an emulator or a private endpoint; empty: the region's

	// PollInterval is the pause after a read that found the shard's tip; default 500ms. The service allows five reads a
	// second and shard to all consumers together.
	PollInterval time.Duration

	Logger      *slog.Logger            // nil: silent
	HTTPClient  aws.HTTPClient          // nil: the SDK's own
	Credentials aws.CredentialsProvider // nil: the SDK's chain
}

var streamName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,128}$`)

const urlHint = "Write kinesis://NAME, with ?region=, &profile= and &endpoint= where the environment does not say, or a stream ARN."

// IsURL tells whether s names a Kinesis stream.
func IsURL(s string) bool {
	return strings.HasPrefix(s, "kinesis:") || strings.HasPrefix(s, "arn:") && strings.Contains(s, ":kinesis:")
}

// ParseURL reads kinesis://NAME[?region=&profile=&endpoint=] or a stream ARN.
func ParseURL(s string) (Options, error) {
	if strings.HasPrefix(s, "arn:") {
		return parseARN(s)
	}
	rest, ok := strings.CutPrefix(s, "kinesis://")
	if !ok {
		return Options{}, fault.New(fault.Usage, urlHint, "stream %q is not a Kinesis URL", s)
	}
	name, query, _ := strings.Cut(rest, "?")
	o := Options{Name: strings.TrimSuffix(name, "/")}
	if strings.HasPrefix(name, "arn:") {
		var err error
		if o, err = parseARN(name); err != nil {
			return Options{}, err
		}
	} else if !streamName.MatchString(o.Name) {
		return Options{}, fault.New(fault.Usage, urlHint, "%q is not a stream's name: letters, digits, _ . - and at most 128 of them", o.Name)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return Options{}, fault.New(fault.Usage, urlHint, "read the options of stream %s: %w", o.Name, err)
	}
	for k, v := range values {
		switch k {
		case "region":
			o.Region = v[0]
		case "profile":
			o.Profile = v[0]
		case "endpoint":
			o.Endpoint = v[0]
		default:
			return Options{}, fault.New(fault.Usage, urlHint, "stream %s: unknown option %q", o.Name, k)
		}
	}
	return o, checkEndpoint(o.Endpoint)
}

func checkEndpoint(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fault.New(fault.Usage, "Write it as http://127.0.0.1:4602.", "endpoint is not an http or https URL")
	}
	if u.User != nil {
		return fault.New(fault.Usage, "Give credentials by the environment or a profile.", "endpoint %s holds a user or password", u.Redacted())
	}
	return nil
}

func parseARN(s string) (Options, error) {
	// arn:partition:kinesis:region:account:stream/NAME
	p := strings.SplitN(s, ":", 6)
	if len(p) == 6 && p[2] == "kinesis" && p[3] != "" {
		if name, ok := strings.CutPrefix(p[5], "stream/"); ok && streamName.MatchString(name) {
			return Options{Name: name, ARN: s, Region: p[3]}, nil
		}
	}
	return Options{}, fault.New(fault.Usage, urlHint, "%q is not the ARN of a Kinesis stream (arn:aws:kinesis:REGION:ACCOUNT:stream/NAME)", s)
}

// URL names the stream in messages and hints: what the user would write, without secrets.
func (o Options) URL() string {
	if o.ARN != "" {
		return o.ARN
	}
	q := url.Values{}
	for k, v := range map[string]string{"region": o.Region, "profile": o.Profile, "endpoint": o.Endpoint} {
		if v != "" {
			q.Set(k, v)
		}
	}
	if len(q) == 0 {
		return "kinesis://" + o.Name
	}
	// A colon and a slash need no escape in a query, and people read this.
	return "kinesis://" + o.Name + "?" + strings.NewReplacer("%3A", ":", "%2F", "/").Replace(q.Encode())
}

func (o Options) logger() *slog.Logger {
	if o.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Logger
}

// names gives the two forms in which operations take a stream; one of them is nil.
func (o Options) names() (name, arn *string) {
	if o.ARN != "" {
		return nil, aws.String(o.ARN)
	}
	return aws.String(o.Name), nil
}
