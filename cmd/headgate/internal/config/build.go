package config

import (
	"cmp"
	"crypto/tls"
	"errors"
	"io"
	"net/url"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/cmd/headgate/internal/logs"
	"github.com/headgate/headgate/internal/embedded"
)

// Store returns what opens the Redis; it reads the files of its password and of TLS, and puts what those say of the second Redis into the
// configuration of the store. The notes are the store's own.
func (l *Loaded) Store(notes io.Writer) (embedded.Config, error) {
	c := &l.Config.Redis
	config := embedded.Config{Addr: c.URL, Username: c.Username, PoolSize: c.PoolSize, Log: notes}
	var bad, second error
	password, err := l.secretOf(pathPassword, c.Password, c.PasswordFile)
	config.Password = password.Text
	if target, no := url.Parse(c.URL); no == nil && l.source(PathURL) > max(l.source(pathPassword), l.source(pathPassword+fileSuffix)) {
		if _, own := target.User.Password(); own {
			config.Username, config.Password = "", ""
		}
	}
	if isTLS(c.URL) {
		config.TLS, bad = c.TLS.config()
	}
	if isTLS(c.Store.Second) {
		files := c.TLS
		files.ServerName = "" // The name of the first.
		c.Store.SecondTLS, second = files.config()
	}
	return config, errors.Join(err, cmp.Or(bad, second))
}

// tlsVersions are the words of redis.tls.min_version.
var tlsVersions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

func (t TLS) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tlsVersions[t.MinVersion], ServerName: t.ServerName}
	var bad []error
	if t.CAFile != "" {
		var err error
		config.RootCAs, err = readAuthorities("redis.tls.ca_file", t.CAFile)
		bad = append(bad, err)
	}
	if t.CertFile != "" && t.KeyFile != "" {
		pair, err := readPair("redis.tls.cert_file", "redis.tls.key_file", t.CertFile, t.KeyFile)
		if err == nil {
			config.Certificates = []tls.Certificate{*pair}
		}
		bad = append(bad, err)
	}
	return config, errors.Join(bad...)
}

// Logs returns the configuration of the log.
func (l *Loaded) Logs() logs.Config {
	c := l.Config.Log
	own := map[logs.Component]string{}
	for i, component := range logs.Components {
		own[component] = c.Levels[i]
	}
	return logs.Config{Level: c.Level, Own: own, Format: c.Format, Burst: c.Burst, Thereafter: c.Thereafter}
}

// BreakerRules returns the rules of circuit breakers, and those of single downstreams.
func (l *Loaded) BreakerRules() (rules breaker.Config, own map[string]breaker.Config) {
	own = make(map[string]breaker.Config, len(l.Config.Worker.Breakers))
	for name, b := range l.Config.Worker.Breakers {
		own[name] = b.Config
	}
	return l.Config.Worker.Breaker.Config, own
}

// DeliverSecret returns the secrets that sign deliveries; it reads their file.
func (l *Loaded) DeliverSecret() (Secret, error) {
	return l.secretOf(pathSecret, l.Config.Worker.Deliver.Secret, l.Config.Worker.Deliver.SecretFile)
}

// NotifySecret is DeliverSecret for what signs notes of transitions.
func (l *Loaded) NotifySecret() (Secret, error) {
	return l.secretOf(PathNotifySecret, l.Config.Scheduler.Notify.Secret, l.Config.Scheduler.Notify.SecretFile)
}
