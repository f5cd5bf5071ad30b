package rls

import (
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"
)

// filters of deploy/envoy/envoy.yaml, as far as the test looks at them.
type filter struct {
	Name   string `yaml:"name"`
	Config struct {
		Domain      string         `yaml:"domain"`
		StatPrefix  string         `yaml:"stat_prefix"`
		TokenBucket map[string]any `yaml:"token_bucket"`
		Service     struct {
			Version string `yaml:"transport_api_version"`
			GRPC    struct {
				Envoy struct {
					Cluster string `yaml:"cluster_name"`
				} `yaml:"envoy_grpc"`
			} `yaml:"grpc_service"`
		} `yaml:"rate_limit_service"`
		Gradient map[string]map[string]any `yaml:"gradient_controller_config"`
	} `yaml:"typed_config"`
}

// TestEnvoysConfigurationFits: it has the papers' figures, and asks a domain and a cluster that there are, by an action that a rule is for.
func TestEnvoysConfigurationFits(t *testing.T) {
	t.Parallel()
	var envoy struct {
		Resources struct {
			Listeners []struct {
				Chains []struct {
					Filters []struct {
						Config struct {
							HTTP   []filter `yaml:"http_filters"`
							Routes struct {
								Hosts []struct {
									Limits []struct {
										Actions []map[string]struct {
											Key string `yaml:"descriptor_key"`
										} `yaml:"actions"`
									} `yaml:"rate_limits"`
								} `yaml:"virtual_hosts"`
							} `yaml:"route_config"`
						} `yaml:"typed_config"`
					} `yaml:"filters"`
				} `yaml:"filter_chains"`
			} `yaml:"listeners"`
			Clusters []struct {
				Name string `yaml:"name"`
			} `yaml:"clusters"`
		} `yaml:"static_resources"`
	}
	text, err := os.ReadFile(filepath.Join("..", "deploy", "envoy", "envoy.yaml"))
	check(t, err)
	check(t, yaml.Unmarshal(text, &envoy))
	text, err = os.ReadFile(filepath.Join("..", "deploy", "envoy", "rls.yaml"))
	check(t, err)
	m, err := ReadMapping(text)
	check(t, err)
	manager := envoy.Resources.Listeners[0].Chains[0].Filters[0].Config
	clusters, found := map[string]bool{}, map[string]filter{}
	for _, c := range envoy.Resources.Clusters {
		clusters[c.Name] = true
	}
	for _, f := range manager.HTTP {
		found[f.Name] = f
	}
	local := found["envoy.filters.http.local_ratelimit"].Config
	if b := local.TokenBucket; local.StatPrefix != "http_local_rate_limiter" || b["max_tokens"] != 1000 || b["tokens_per_fill"] != 1000 || b["fill_interval"] != "1s" {
		t.Errorf("local_ratelimit: %+v", local)
	}
	gradient := found["envoy.filters.http.adaptive_concurrency"].Config.Gradient
	calc, params := gradient["min_rtt_calc_params"], gradient["concurrency_limit_params"]
	if gradient["sample_aggregate_percentile"]["value"] != 95 || params["max_concurrency_limit"] != 1000 || params["concurrency_update_interval"] != "0.1s" ||
		calc["interval"] != "30s" || calc["request_count"] != 50 {
		t.Errorf("adaptive_concurrency: %v", gradient)
	}
	asked := found["envoy.filters.http.ratelimit"].Config
	domain, ok := m.Domains[asked.Domain]
	if !ok || asked.Service.Version != "V3" || !clusters[asked.Service.GRPC.Envoy.Cluster] {
		t.Errorf("ratelimit: %+v", asked)
	}
	for _, limit := range manager.Routes.Hosts[0].Limits {
		var entries []Match
		for _, action := range limit.Actions {
			for _, of := range action {
				entries = append(entries, Match{Key: of.Key, Value: "any"})
			}
		}
		if domain.rule(entries) == nil {
			t.Errorf("no rule is for %v", entries)
		}
	}
}
