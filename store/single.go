package store

import (
	"context"
	"io"

	"github.com/headgate/headgate/admission"
)

// Single returns the deployment of one partition. Its Close is that of closing.
func Single(part Partition, closing io.Closer) Deployment {
	return &single{Partition: part, closing: closing}
}

type single struct {
	Partition
	closing io.Closer
}

func (s *single) Partitions() []Partition { return []Partition{s.Partition} }

func (s *single) PartitionOf(string) int { return 0 }

func (s *single) Each(do func(i int, part Partition) error) error { return do(0, s.Partition) }

func (s *single) Shares(context.Context) ([]Share, error) { return nil, nil }

func (s *single) NewBalancer() Balancer { return nil }

func (s *single) Close() error { return s.closing.Close() }

func (s *single) GlobalShares(context.Context, admission.Tokens) ([]float64, error) { return nil, nil }
