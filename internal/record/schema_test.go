package record

import (
	"bytes"
	"os"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const schemaFile = "../../docs/record.schema.json"

func recordSchema(t *testing.T) (*jsonschema.Schema, map[string]any) {
	t.Helper()
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("urn:synctl:record:1", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("urn:synctl:record:1")
	if err != nil {
		t.Fatal(err)
	}
	return s, doc.(map[string]any)["properties"].(map[string]any)
}

// TestSchema validates the output of every operation, and sees to it that the published schema knows every field.
func TestSchema(t *testing.T) {
	s, fields := recordSchema(t)
	lines := map[string][]byte{}
	for name, c := range ops() {
		line, err := AppendLine(nil, c.r)
		if err != nil {
			t.Fatal(err)
		}
		lines[name] = line
	}
	for name, payload := range map[string]string{"data": `{"a": [1]}`, "data that is not JSON": "\xff\x00"} {
		line, err := AppendData(nil, "s/shard-0/17/0", []byte(payload))
		if err != nil {
			t.Fatal(err)
		}
		lines[name] = line
	}
	seen := map[string]bool{}
	for name, line := range lines {
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := s.Validate(v); err != nil {
			t.Errorf("%s: %s: %v", name, line, err)
		}
		for field := range v.(map[string]any) {
			seen[field] = true
			if fields[field] == nil {
				t.Errorf("%s: the schema does not know %q", name, field)
			}
		}
	}
	for _, field := range fieldNames {
		if !seen[field] || fields[field] == nil {
			t.Errorf("field %q: written %t, in the schema %t", field, seen[field], fields[field] != nil)
		}
	}
}

// TestSchemaRefusesWhatParseRefuses keeps the two descriptions of the format together.
func TestSchemaRefusesWhatParseRefuses(t *testing.T) {
	s, _ := recordSchema(t)
	for name, line := range malformed() {
		var r Record
		if err := Parse([]byte(line.in), &r); err == nil {
			t.Errorf("%s: Parse took %s", name, line.in)
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(line.in)))
		if err != nil || line.beyondSchema {
			continue
		}
		if s.Validate(v) == nil {
			t.Errorf("%s: the schema takes %s", name, line.in)
		}
	}
}
