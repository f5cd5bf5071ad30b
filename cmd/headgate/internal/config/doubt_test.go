package config

import "testing"

// TestAMistypedVariableOfNoSectionIsTold, while a variable of a job that a command runs for, or of anybody else, is not.
func TestAMistypedVariableOfNoSectionIsTold(t *testing.T) {
	t.Parallel()
	loaded, err := Load(Sources{Environ: []string{
		"HEADGATE_WORKR_LEASE=30s", "HEADGATE_ID=7", "HEADGATE_TENANT=acme", "HEADGATE_QUEUE=mail", "HEADGATE_TYPE=send", "HEADGATE_PRIORITY=high",
		"HEADGATE_ATTEMPT=1", "HEADGATE_MAX_ATTEMPTS=4", "HEADGATE_DEADLINE=", "HEADGATE_DOWNSTREAM=api", "HEADGATE_HEADER_LEASE=x",
		"HEADGATE_API_SERVICE_HOST=10.0.0.1", "HEADGATE_TEST_AS_COMMAND=1", "REDIS=x",
	}})
	if err != nil {
		t.Fatal(err)
	}
	doubts := loaded.Doubts()
	if len(doubts) != 1 || doubts[0].Error() != "unknown key HEADGATE_WORKR_LEASE: did you mean HEADGATE_WORKER_LEASE?" {
		t.Errorf("%v", doubts)
	}
}
