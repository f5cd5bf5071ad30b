// Package route is what a handler of the admin API gets and gives. A Route says which role it needs and whose things it
// reaches; one that does not say is refused at start, so that nothing is open by oversight.
package route
