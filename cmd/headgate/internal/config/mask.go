package config

import (
	"encoding/json"
	"net/url"
	"strings"
)

// hidden stands for what is not shown.
const hidden = "***"

// maskURL shows the address of a Redis without what may be a secret.
func maskURL(text string) string {
	if !strings.Contains(text, "://") {
		if strings.Contains(text, "@") {
			return hidden
		}
		return text
	}
	target, err := url.Parse(text)
	// A password that is not encoded may begin a path, and somebody may have written one as a parameter.
	if err != nil || strings.Contains(target.Path+target.Fragment, "@") || strings.ContainsAny(target.RawQuery, "@:") ||
		strings.Contains(strings.ToLower(target.RawQuery), "pass") {
		return hidden
	}
	if target.User == nil {
		return text
	}
	if _, given := target.User.Password(); !given {
		target.User = url.User("xxxxx") // Some write a password where the user goes.
	}
	return target.Redacted()
}

// maskTarget shows the host of a URL: receivers take tokens in paths and queries.
func maskTarget(text string) string {
	target, err := url.Parse(text)
	if err != nil || target.Host == "" {
		return hidden
	}
	shown := target.Scheme + "://" + target.Host
	if target.User != nil || strings.Trim(target.Path, "/") != "" || target.RawQuery != "" || target.Fragment != "" {
		shown += "/" + hidden
	}
	return shown
}

// maskArguments shows a command without its arguments.
func maskArguments(text string) string {
	var command []string
	if json.Unmarshal([]byte(text), &command) != nil {
		return hidden
	}
	for i := range command[1:] {
		command[1+i] = hidden
	}
	return quoteJSON(command)
}
