package kinesis

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"

	"synctl/internal/fault"
)

const credentialsHint = "Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (any will do for an emulator), " +
	"run `aws sso login`, or give the instance or pod a role."

// maxConnections are kept to the endpoint between calls: shards are read and requests sent at the same time.
const maxConnections = 64

// connect makes a client by the SDK's own chain. It tries a failed call again by itself, see once.
func connect(ctx context.Context, o Options) (*kinesis.Client, error) {
	var load []func(*config.LoadOptions) error
	if o.Region != "" {
		load = append(load, config.WithRegion(o.Region))
	}
	if o.Profile != "" {
		load = append(load, config.WithSharedConfigProfile(o.Profile))
	}
	if o.Credentials != nil {
		load = append(load, config.WithCredentialsProvider(o.Credentials))
	}
	load = append(load, config.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConnsPerHost = max(t.MaxIdleConnsPerHost, maxConnections)
	})))
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, fault.New(fault.Usage, "Look at ~/.aws/config, AWS_PROFILE and the stream's profile= option.", "load the AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		if !loopback(o.Endpoint) {
			return nil, fault.New(fault.Usage, "Add ?region= to the stream's URL, or set AWS_REGION.", "no AWS region is known for stream %s", o.Name)
		}
		cfg.Region = "us-east-1" // an emulator on this host: only the signature holds it, and nobody reads that
	}
	if cfg.Credentials == nil {
		return nil, fault.New(fault.Usage, credentialsHint, "no AWS credentials are configured")
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("get AWS credentials: %w", ctx.Err())
		}
		return nil, fault.New(fault.Usage, credentialsHint, "get AWS credentials: %w", err)
	}
	return kinesis.NewFromConfig(cfg, func(ko *kinesis.Options) {
		if o.Endpoint != "" {
			ko.BaseEndpoint = aws.String(o.Endpoint)
		}
		if o.HTTPClient != nil {
			ko.HTTPClient = o.HTTPClient
		}
	}), nil
}

// once is a client like c, with its credentials and connections, that leaves every retry to the caller.
func once(c *kinesis.Client) *kinesis.Client {
	return kinesis.New(c.Options(), func(o *kinesis.Options) { o.Retryer = aws.NopRetryer{} })
}

func loopback(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	switch u.Hostname() {
	case "127.0.0.1", "::1", "localhost":
		return true
	}
	return false
}
