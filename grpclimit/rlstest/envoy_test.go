package rlstest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/adaptive_concurrency/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	manager "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
)

// TestEnvoysConfigurationIsOfItsProtos: deploy/envoy/envoy.yaml has no field that Envoy's protos have not, and their rules find no fault in it, nor in any
// filter. No Envoy is run.
func TestEnvoysConfigurationIsOfItsProtos(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "envoy", "envoy.yaml"))
	check(t, err)
	var tree any
	check(t, yaml.Unmarshal(text, &tree))
	text, err = json.Marshal(tree)
	check(t, err)
	var envoy bootstrap.Bootstrap
	check(t, protojson.Unmarshal(text, &envoy))
	check(t, envoy.ValidateAll())
	checked := 0
	valid := func(config *anypb.Any) any {
		message, err := config.UnmarshalNew()
		check(t, err)
		rules, ok := message.(interface{ ValidateAll() error })
		if !ok {
			t.Fatalf("%s has no rules", config.GetTypeUrl())
		}
		check(t, rules.ValidateAll())
		checked++
		return message
	}
	for _, listener := range envoy.GetStaticResources().GetListeners() {
		for _, chain := range listener.GetFilterChains() {
			for _, filter := range chain.GetFilters() {
				if m, ok := valid(filter.GetTypedConfig()).(*manager.HttpConnectionManager); ok {
					for _, filter := range m.GetHttpFilters() {
						valid(filter.GetTypedConfig())
					}
				}
			}
		}
	}
	for _, cluster := range envoy.GetStaticResources().GetClusters() {
		for _, options := range cluster.GetTypedExtensionProtocolOptions() {
			valid(options)
		}
	}
	if checked < 6 {
		t.Errorf("%d filters and options were looked at", checked)
	}
}
