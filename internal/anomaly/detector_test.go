package anomaly

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

const day = 24 * 60

// poisson draws a count whose mean is given: a small one by the product of uniform numbers (Knuth), others by transformed rejection (PTRS,
// W. Hörmann, The transformed rejection method for generating Poisson random variables, 1993).
func poisson(r *rand.Rand, mean float64) (n int64) {
	if mean < 10 {
		for left := math.Exp(-mean); ; n++ {
			if left /= r.Float64(); left > 1 {
				return n
			}
		}
	}
	b := 0.931 + 2.53*math.Sqrt(mean)
	a := -0.059 + 0.02483*b
	for {
		u, v := r.Float64()-0.5, r.Float64()
		us := 0.5 - math.Abs(u)
		k := math.Floor((2*a/us+b)*u + mean + 0.43)
		if us >= 0.07 && v <= 0.9277-3.6224/(b-2) {
			return int64(k)
		}
		if k < 0 || us < 0.013 && v > us {
			continue
		}
		factorial, _ := math.Lgamma(k + 1)
		if math.Log(v*(1.1239+1.1328/(b-3.4))/(a/(us*us)+b)) <= k*math.Log(mean)-mean-factorial {
			return int64(k)
		}
	}
}

// TestPoissonIsOne: mean and variance of what is drawn are the mean.
func TestPoissonIsOne(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 1))
	for _, mean := range []float64{0.5, 5, 12, 90, 2000} {
		const draws = 200_000
		sum, squares := 0.0, 0.0
		for range draws {
			x := float64(poisson(r, mean)) - mean
			sum, squares = sum+x, squares+x*x
		}
		off, variance := sum/draws/math.Sqrt(mean/draws), squares/draws/mean
		if math.Abs(off) > 5 || math.Abs(variance-1) > 0.03 {
			t.Errorf("of mean %g the mean is %.1f deviations off, the variance %.3f of it", mean, off, variance)
		}
	}
}

// fleet is tenants with a daily wave, and the queue that all use.
type fleet struct {
	random *rand.Rand
	means  []float64
	phases []float64
	// of multiplies a tenant's rate from a minute on; nil for nobody.
	of func(tenant int, minute int64) float64
}

// newFleet draws rates of 0.5 to 300 a minute, as many of each size, and swings them by nine tenths either way.
func newFleet(seed uint64, tenants int) *fleet {
	f := &fleet{random: rand.New(rand.NewPCG(seed, 1))}
	for range tenants {
		f.means = append(f.means, 0.5*math.Pow(600, f.random.Float64()))
		f.phases = append(f.phases, f.random.NormFloat64()/2)
	}
	return f
}

func (f *fleet) minute(at int64) Minute {
	m := Minute{At: at, Counts: map[Name]Decided{}}
	var sum Decided
	for tenant, mean := range f.means {
		rate := mean * (1 + 0.9*math.Sin(2*math.Pi*float64(at)/day+f.phases[tenant]))
		if f.of != nil {
			rate *= f.of(tenant, at)
		}
		one := Decided{Admitted: poisson(f.random, 0.9*rate), Refused: poisson(f.random, 0.1*rate)}
		if one == (Decided{}) {
			continue // It is not counted then.
		}
		m.Counts[tenantName(tenant)] = one
		sum.Admitted, sum.Refused = sum.Admitted+one.Admitted, sum.Refused+one.Refused
	}
	m.Counts[Name{Queue, "mail"}], m.Counts[Name{Of: Deployment}] = sum, sum
	return m
}

func tenantName(n int) Name { return Name{Tenant, fmt.Sprintf("t%04d", n)} }

// TestNoFalseAlarmInADay: a thousand tenants, each a Poisson process with a daily wave, a tenth refused, over a day.
func TestNoFalseAlarmInADay(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			var d Detector
			f, judged := newFleet(seed, 1000), 0
			for at := int64(1); at <= day+History; at++ {
				for _, alarm := range d.Observe(f.minute(at)) {
					t.Errorf("false alarm: %+v", alarm)
				}
				judged += d.Watched()
			}
			t.Logf("%d minutes of %d names, no alarm", judged, d.Watched())
		})
	}
}

// TestTenTimesAsMuchIsFoundInThreeMinutes: a hundred tenants, each in its turn for five minutes. At the least of the wave they have 5 a minute:
// of one with 2, ten times as much may be too little to tell from chance in two minutes in a row.
func TestTenTimesAsMuchIsFoundInThreeMinutes(t *testing.T) {
	t.Parallel()
	const tenants, apart, lasts = 100, 14, 5
	for seed := range uint64(3) {
		f := newFleet(seed, tenants)
		for i := range f.means {
			f.means[i] = max(f.means[i], 50)
		}
		begins := func(tenant int) int64 { return History + int64(tenant)*apart }
		f.of = func(tenant int, at int64) float64 {
			if since := at - begins(tenant); since >= 0 && since < lasts {
				return 10
			}
			return 1
		}
		found, after := map[Name]int64{}, map[int64]int{}
		var d Detector
		for at := int64(1); at < begins(tenants); at++ {
			for _, alarm := range d.Observe(f.minute(at)) {
				if alarm.Of == Tenant && alarm.Kind == Surge && found[alarm.Name] == 0 {
					found[alarm.Name] = at
				}
			}
		}
		for tenant := range tenants {
			name := tenantName(tenant)
			switch at := found[name] - begins(tenant) + 1; {
			case found[name] == 0:
				t.Errorf("seed %d: %s of %.0f a minute is not found", seed, name, f.means[tenant])
			case at < InARow || at > 3:
				t.Errorf("seed %d: %s of %.0f a minute is found in minute %d", seed, name, f.means[tenant], at)
			default:
				after[at]++
			}
		}
		t.Logf("seed %d: found by minute %v of %d tenants", seed, after, tenants)
	}
}

// steady gives a name the same count each minute.
func steady(d *Detector, from, to int64, counts map[Name]Decided) (alarms []Alarm) {
	for at := from; at <= to; at++ {
		alarms = append(alarms, d.Observe(Minute{At: at, Counts: counts})...)
	}
	return alarms
}

var (
	acme = Name{Tenant, "acme"}
	mail = Name{Queue, "mail"}
	all  = Name{Of: Deployment}
)

// TestWhatIsNotUsual walks through each kind: the second minute tells of it, and each further one.
func TestWhatIsNotUsual(t *testing.T) {
	t.Parallel()
	usual := map[Name]Decided{acme: {Admitted: 50}, mail: {Admitted: 400, Refused: 100}}
	for _, c := range []struct {
		name string
		then map[Name]Decided
		want Alarm
	}{
		{"surge", map[Name]Decided{acme: {Admitted: 93}, mail: usual[mail]}, Alarm{Kind: Surge, Name: acme, Rate: 93, Usual: 50}},
		{"silence", map[Name]Decided{mail: usual[mail]}, Alarm{Kind: Silence, Name: acme, Rate: 0, Usual: 50}},
		{"refusals", map[Name]Decided{acme: usual[acme], mail: {Admitted: 340, Refused: 161}}, Alarm{Kind: RefusalSurge, Name: mail, Rate: 161, Usual: 100}},
		{"nothing", map[Name]Decided{acme: {Admitted: 92}, mail: {Admitted: 640, Refused: 160}}, Alarm{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var d Detector
			if got := steady(&d, 1, History, usual); len(got) > 0 {
				t.Fatalf("what is usual: %+v", got)
			}
			if got := steady(&d, History+1, History+1, c.then); len(got) > 0 {
				t.Fatalf("after one minute: %+v", got)
			}
			got := steady(&d, History+2, History+3, c.then)
			if c.want.Kind == "" {
				if len(got) > 0 {
					t.Fatalf("%+v", got)
				}
				return
			}
			if len(got) != 2 {
				t.Fatalf("after two minutes and three: %+v", got)
			}
			for i, alarm := range got {
				c.want.At = History + 2 + int64(i)
				if alarm.Kind != c.want.Kind || alarm.Name != c.want.Name || alarm.At != c.want.At || alarm.Rate != c.want.Rate || alarm.Usual != c.want.Usual {
					t.Errorf("got %+v, want %+v", alarm, c.want)
				}
			}
			if got := steady(&d, History+4, History+5, usual); len(got) > 0 {
				t.Errorf("when it is over: %+v", got)
			}
		})
	}
}

// TestOneMinuteIsNoAlarm: peaks of each other minute are not two in a row, however high.
func TestOneMinuteIsNoAlarm(t *testing.T) {
	t.Parallel()
	var d Detector
	steady(&d, 1, History, map[Name]Decided{acme: {Admitted: 50}})
	for at := int64(History + 1); at < History+21; at++ {
		if got := d.Observe(Minute{At: at, Counts: map[Name]Decided{acme: {Admitted: 50 + 5000*(at%2)}}}); len(got) > 0 {
			t.Fatalf("minute %d: %+v", at, got)
		}
	}
}

// TestFewAreNoAlarm: 10 a minute where there were none are not told, 11 are.
func TestFewAreNoAlarm(t *testing.T) {
	t.Parallel()
	for count, want := range map[int64]int{MinRate: 0, MinRate + 1: 2} {
		var d Detector
		steady(&d, 1, 1, map[Name]Decided{acme: {Admitted: 1}})
		steady(&d, 2, History, nil)
		if got := steady(&d, History+1, History+3, map[Name]Decided{acme: {Admitted: count}}); len(got) != want {
			t.Errorf("%d a minute: %+v", count, got)
		}
	}
}

// TestWhoComesAnewIsNoSurge: a name has no history before it was counted first, and is forgotten after an hour without a count.
func TestWhoComesAnewIsNoSurge(t *testing.T) {
	t.Parallel()
	var d Detector
	steady(&d, 1, History, map[Name]Decided{mail: {Admitted: 50}})
	both := map[Name]Decided{mail: {Admitted: 50}, acme: {Admitted: 900}}
	if got := steady(&d, History+1, 2*History, both); len(got) > 0 {
		t.Errorf("%+v", got)
	}
	got := steady(&d, 2*History+1, 4*History, map[Name]Decided{mail: {Admitted: 50}})
	if d.Watched() != 1 {
		t.Errorf("%d names are watched", d.Watched())
	}
	if len(got) == 0 || got[0].Kind != Silence || got[0].Name != acme {
		t.Errorf("that it stays away is %+v", got)
	}
	if got := steady(&d, 4*History+1, 4*History+3, both); len(got) > 0 {
		t.Errorf("back after an hour: %+v", got)
	}
}

// TestWhatIsNotKnownIsNoSilence: names that were not counted because others were, and minutes that nobody read.
func TestWhatIsNotKnownIsNoSilence(t *testing.T) {
	t.Parallel()
	usual := map[Name]Decided{acme: {Admitted: 500}, mail: {Admitted: 500}}
	var d Detector
	steady(&d, 1, History, usual)
	for at := int64(History + 1); at < History+11; at++ {
		if got := d.Observe(Minute{At: at, Counts: map[Name]Decided{mail: {Admitted: 500}}, Unknown: map[Subject]bool{Tenant: true}}); len(got) > 0 {
			t.Fatalf("crowded: %+v", got)
		}
	}
	for at := int64(History + 11); at < History+16; at++ {
		m := Minute{At: at, Counts: map[Name]Decided{mail: {Admitted: 500}, acme: {Admitted: 1}}, Unsure: map[Name]bool{acme: true}}
		if got := d.Observe(m); len(got) > 0 {
			t.Fatalf("unsure: %+v", got)
		}
	}
	if got := steady(&d, History+26, History+26, nil); len(got) > 0 {
		t.Fatalf("after minutes that nobody read: %+v", got)
	}
	if got := steady(&d, History+27, History+27, nil); len(got) != 2 {
		t.Fatalf("then both are silent: %+v", got)
	}
	if got := d.Observe(Minute{At: History + 27}); got != nil {
		t.Errorf("the same minute again: %+v", got)
	}
}

// TestASilentDeploymentIsOneAlarm, and not one of each tenant.
func TestASilentDeploymentIsOneAlarm(t *testing.T) {
	t.Parallel()
	var d Detector
	steady(&d, 1, History, map[Name]Decided{acme: {Admitted: 500}, mail: {Admitted: 500}, all: {Admitted: 500}})
	got := steady(&d, History+1, History+2, nil)
	if len(got) != 1 || got[0].Kind != Silence || got[0].Name != all {
		t.Errorf("%+v", got)
	}
}

// TestBounds: names beyond MaxNames are not watched, alarms beyond MaxAlarms not told, the loudest are.
func TestBounds(t *testing.T) {
	t.Parallel()
	counts, much := map[Name]Decided{}, map[Name]Decided{}
	for i := range MaxNames + 100 {
		counts[tenantName(i)], much[tenantName(i)] = Decided{Admitted: 50}, Decided{Admitted: int64(1000 + i)}
	}
	var d Detector
	steady(&d, 1, History, counts)
	if d.Watched() != MaxNames {
		t.Errorf("%d names are watched", d.Watched())
	}
	steady(&d, History+1, History+1, much)
	got := d.Observe(Minute{At: History + 2, Counts: much})
	if len(got) != MaxAlarms || got[0].Name != tenantName(MaxNames-1) {
		t.Errorf("%d alarms, first %+v", len(got), got[0])
	}
}

// TestTheMediansAreThose that sorting gives, whatever comes, and whatever of it is not known.
func TestTheMediansAreThose(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		k, window := newTrack(), []float64(nil)
		counts := rapid.SliceOfN(rapid.Int64Range(-1, 20), History, 3*History).Draw(r, "counts")
		for minute, count := range counts {
			k.observe(int64(minute), count)
			window = window[:0]
			for _, c := range counts[max(0, minute+1-History) : minute+1] {
				if c != unknown {
					window = append(window, float64(c))
				}
			}
			if len(window) != k.n {
				r.Fatalf("%d of %d are known", k.n, len(window))
			}
			if k.n == 0 {
				continue
			}
			median := middle(window)
			for i := range window {
				window[i] = math.Abs(window[i] - median)
			}
			if got := medianOf(k.sorted[:k.n]); got != median {
				r.Fatalf("median %f, want %f", got, median)
			}
			if got, want := distanceOf(k.sorted[:k.n], median), middle(window); got != want {
				r.Fatalf("MAD %f, want %f", got, want)
			}
		}
	})
}

func middle(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// BenchmarkMinute: a minute of 4096 names.
func BenchmarkMinute(b *testing.B) {
	f := newFleet(1, MaxNames-2)
	var minutes []Minute
	for at := range int64(20) {
		minutes = append(minutes, f.minute(at+1))
	}
	var d Detector
	at := int64(0)
	for b.Loop() {
		m := minutes[at%20]
		at++
		m.At = at
		d.Observe(m)
	}
}
