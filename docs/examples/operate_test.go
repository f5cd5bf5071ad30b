package examples_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// migrate holds the mails back, lists those of acme that wait, and says why one of them does.
func migrate(ctx context.Context, hg *headgate.Client) (why headgate.Explanation, err error) {
	//snippet:begin operate
	_, err = hg.Operate("ada").Pause(ctx, headgate.Queue("mail"), headgate.For(10*time.Minute, "provider migrates"))
	if err != nil {
		return why, err
	}
	for job, err := range hg.Inspect().Jobs(ctx, headgate.Filter{Tenant: "acme", Place: headgate.PlaceWaiting}) {
		if err != nil {
			return why, err
		}
		fmt.Println(job.Key.ID, job.Queue, job.Place)
	}
	return hg.Inspect().Explain(ctx, headgate.Key{Tenant: "acme", ID: "order-17"})
	//snippet:end
}

// tellWhy prints why a job waits.
func tellWhy(ctx context.Context, hg *headgate.Client, to io.Writer) error {
	//snippet:begin why
	why, err := hg.Inspect().Explain(ctx, headgate.Key{Tenant: "acme", ID: "order-17"})
	if err != nil {
		return err // headgate.ErrUnknownJob: it was never in, or ended long ago
	}
	fmt.Fprintln(to, why) // what the command prints; why.Reasons has it one by one, for programs
	//snippet:end
	return nil
}

func TestAnOperatorLooksAndActs(t *testing.T) {
	t.Parallel()
	hg := open(t)
	ctx := t.Context()
	_, err := hg.Enqueue(ctx, headgate.Job{Tenant: "acme", Queue: "mail", Args: Welcome{To: "ada"}, ID: "order-17"})
	check(t, err)
	why, err := migrate(ctx, hg)
	if err != nil || len(why.Reasons) == 0 {
		t.Errorf("%+v, %v", why, err)
	}
	var told strings.Builder
	check(t, tellWhy(ctx, hg, &told))
	for _, want := range []string{"job acme:order-17: waiting", "! pause: queue mail is paused by ada: provider migrates, until ", "    change: headgate resume --queue mail\n"} {
		if !strings.Contains(told.String(), want) {
			t.Errorf("%q is not in %s", want, &told)
		}
	}
}
