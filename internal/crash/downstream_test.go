package crash_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// What a downstream may do with a call. One whose process was killed refuses it.
const (
	behaveWell   = "well"
	behaveFailed = "fail"
	behaveHang   = "hang"
	behaveSlow   = "slow"
	behaveFlap   = "flap"
)

const (
	// slowFor is how long a slow downstream takes, flapEvery how long a flapping one stays as it is.
	slowFor   = 800 * time.Millisecond
	flapEvery = 300 * time.Millisecond
	// keyHeader and tokenHeader name the job and the delivery of a call.
	keyHeader, tokenHeader = "Headgate-Key", "Headgate-Token"
	// Ports are below those of redistest, and below the kernel's for outgoing connections: a killed downstream finds
	// its own again.
	firstPort, lastPort = 10_000, 20_000
)

// downstream is an HTTP server that writes down each call as it comes.
type downstream struct {
	book      *book
	behaviour atomic.Pointer[string]
	// since is when it began to behave so.
	since atomic.Int64
}

func (d *downstream) behave(how string) {
	d.since.Store(nanos())
	d.behaviour.Store(&how)
}

// serve is the role of a downstream, on the port in the book if there is one. PUT /NAME lets it behave so.
func (p *player) serve(ctx context.Context) error {
	d := &downstream{book: p.book}
	d.behave(behaveWell)
	listener, err := p.listen(ctx)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /{behaviour}", func(_ http.ResponseWriter, r *http.Request) { d.behave(r.PathValue("behaviour")) })
	mux.HandleFunc("POST /call", d.call)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (d *downstream) call(w http.ResponseWriter, r *http.Request) {
	d.book.note("C", nanos(), r.Header.Get(keyHeader), r.Header.Get(tokenHeader))
	switch *d.behaviour.Load() {
	case behaveFailed:
		w.WriteHeader(http.StatusInternalServerError)
	case behaveHang:
		<-r.Context().Done()
	case behaveSlow:
		_ = wait(r.Context(), slowFor) // The caller may have gone.
	case behaveFlap:
		if (nanos()-d.since.Load())/int64(flapEvery)%2 == 0 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}
}

// listen takes the port of the role's last process, or any.
func (p *player) listen(ctx context.Context) (net.Listener, error) {
	known, err := portOf(os.Getenv(bookVariable))
	if err != nil {
		return nil, err
	}
	var config net.ListenConfig
	for tries := 0; ; tries++ {
		port := known
		if port == 0 {
			port = firstPort + rand.IntN(lastPort-firstPort)
		}
		listener, err := config.Listen(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err == nil {
			p.book.note("P", port)
			return listener, nil
		}
		if tries == 100 {
			return nil, fmt.Errorf("listen: %w", err)
		}
		if err := wait(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// portOf reads the port that stands in the book of a downstream, 0 if there is none yet.
func portOf(path string) (port int, err error) {
	err = readBook(path, func(words []string) {
		if words[0] == "P" {
			port, _ = strconv.Atoi(words[1])
		}
	})
	return port, err
}

// downstreamURL is where a downstream is called, or told how to behave.
func downstreamURL(book, path string) (string, error) {
	port, err := portOf(book)
	if err == nil && port == 0 {
		err = fmt.Errorf("%s: no port", book)
	}
	return "http://127.0.0.1:" + strconv.Itoa(port) + "/" + path, err
}

// downstreamName is what jobs call a downstream that falls ill. The first process is all of those that stay well.
func downstreamName(number int) string { return "ill" + strconv.Itoa(number) }

// wellName is one of the downstreams that stay well. They are so many that none of them has half of the slots, which is
// the most that a downstream may hold while others wait.
func wellName(number int) string { return wellPrefix + strconv.Itoa(number%wellDownstreams) }

const (
	wellPrefix      = "well"
	wellDownstreams = 5
)

func isWell(downstream string) bool { return strings.HasPrefix(downstream, wellPrefix) }

// callURLs returns where to call each downstream whose book stands beside this one.
func callURLs(beside string) ([]string, error) {
	books, err := filepath.Glob(filepath.Join(filepath.Dir(beside), downstreamRole+"-*"))
	if err != nil {
		return nil, err
	}
	urls := make([]string, len(books))
	for _, path := range books {
		_, number, _ := strings.Cut(filepath.Base(path), "-")
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil, err
		}
		if urls[n], err = downstreamURL(path, "call"); err != nil {
			return nil, err
		}
	}
	return urls, nil
}

// postCall calls a downstream and fails unless it answers well. A POST is not sent again by net/http.
func postCall(ctx context.Context, client *http.Client, url, key, token string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return err
	}
	request.Header.Set(keyHeader, key)
	request.Header.Set(tokenHeader, token)
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("got %s", response.Status)
	}
	return err
}
