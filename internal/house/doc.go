// Package house holds the tests that keep the house in order: which package may import which, which libraries stay on
// which floor, what a package's folder looks like, and that what the pages name is there. It exports nothing and nobody
// imports it.
//
// A package imports from floors below its own, and from its own tree. floors_test.go has the floors, docs/DESIGN.md a drawing of them that
// is made from it.
//
// A new package stands on no floor, and the test fails until floors_test.go says where it belongs.
//
// A package has at most 20 files beside its tests, 12 imports of the house, 8 packages on its longest way down and 15 % of the lines. What is
// above that still is in wide_test.go with its figures, which may not grow.
package house
