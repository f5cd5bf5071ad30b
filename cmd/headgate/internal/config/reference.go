package config

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// referenceHead is what stands above the table.
const referenceHead = `# Configuration

<!-- Written by "headgate config reference"; go test ./cmd/headgate/internal/config -update writes it anew. -->

An option comes from its default, a file (` + "`--config FILE`" + `, or the one that ` + "`HEADGATE_CONFIG`" + ` names; YAML, TOML or JSON by the
end of its name), its variable, or a flag; the later wins. ` + "`--set KEY=VALUE`" + ` is a flag for every option that is no secret.
` + "`headgate config check FILE`" + ` reports all that is wrong with a file, ` + "`headgate config print`" + ` shows what is in force.

In a file a list is a list of texts, in YAML ` + "`queues: [mail=3, hook=1]`" + `; a number in it is quoted. In variables and
after ` + "`--set`" + ` it is written with commas, ` + "`mail=3,hook=1`" + `, or as a JSON array. An empty variable counts as not set, but for
` + "`HEADGATE_SECRET`" + `.

A worker or a server with a file reads it anew on SIGHUP and when it changes, the files of secrets, keys and certificates too.
*Live* options are put in force at once; for others it says that they wait for a restart. A file with a mistake changes nothing,
and all of its mistakes are logged.
`

// Reference writes the reference of all options in Markdown.
func Reference(to io.Writer) error {
	var out strings.Builder
	out.WriteString(referenceHead)
	section := ""
	table := options(anyName)
	for i := range table {
		o := &table[i]
		if o.section() != section {
			section = o.section()
			fmt.Fprintf(&out, "\n## %s\n\n| option | default | allowed | |\n| --- | --- | --- | --- |\n", section)
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", o.names(), o.otherwise(), escape(o.limits()+o.written()), escape(o.meaning()))
	}
	_, err := io.WriteString(to, out.String())
	return err
}

// names are the path, the variable and the flag.
func (o *Option) names() string {
	names := "`" + o.Path + "`"
	if name := o.Env(); name != "" {
		names += "<br>`" + name + "`"
	}
	if o.Flag != "" {
		names += "<br>`--" + o.Flag + "`"
	}
	return names
}

// otherwise says what is in force if nobody says anything.
func (o *Option) otherwise() string {
	if o.Default == "" {
		return escape(o.Unset)
	}
	return "`" + o.Default + "`"
}

// written shows how a file has the value, where that is not how a variable has it.
func (o *Option) written() string {
	if o.Example() == "" {
		return ""
	}
	return "; in a file `" + o.Example() + "`"
}

func (o *Option) meaning() string {
	meaning := o.Doc
	if strings.HasPrefix(o.Path, breakersPath) && strings.HasSuffix(o.Path, ".window") {
		meaning += " NAME is that of a downstream; as variable there is `HEADGATE_WORKER_BREAKERS`, a JSON object for all of them."
	}
	switch {
	case o.secret:
		meaning += " Shown to nobody."
	case o.Secret():
		meaning += " Shown in part only."
	}
	if o.Live {
		meaning += " *Live.*"
	}
	return meaning
}

// escape keeps a text inside its cell.
func escape(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// optionView is an option as JSON shows it.
type optionView struct {
	Path    string `json:"path"`
	Env     string `json:"env,omitempty"`
	Flag    string `json:"flag,omitempty"`
	Type    string `json:"type"`
	Allowed string `json:"allowed"`
	Default string `json:"default,omitempty"`
	Unset   string `json:"unset,omitempty"`
	Doc     string `json:"doc"`
	Secret  bool   `json:"secret"`
	Live    bool   `json:"live"`
}

// ReferenceJSON writes the reference as a JSON array.
func ReferenceJSON(to io.Writer) error {
	table := options(anyName)
	views := make([]optionView, len(table))
	for i := range table {
		o := &table[i]
		views[i] = optionView{o.Path, o.Env(), o.Flag, o.Type(), o.Allowed(), o.Default, o.Unset, o.Doc, o.Secret(), o.Live}
	}
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(views)
}
