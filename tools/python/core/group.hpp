// Groups: calls of this thread that begin together, at the end of a `with` block.
//
// All functions need the GIL.
#pragma once

#include <memory>

#include "nanobind/nanobind.h"
#include "request.hpp"

namespace pith::python {

// Whether this thread has an open group.
bool group_is_open();
// Keeps what a call uses until the end of this thread's group. Precondition: a group is open.
void hold_in_group(Held&& held);

class Group {
 public:
  explicit Group(bool in_background) : in_background_(in_background) {}

  void enter();
  // `failed`: the block has raised; then none of its calls begins.
  void exit(bool failed);
  // What exit() has begun in the background. Raises if that is nothing.
  nb::object request() const;

 private:
  const bool in_background_;
  const void* entered_ = nullptr;  // the group of the thread that has entered
  nb::object request_;
};

void add_group(nb::module_& module);

}  // namespace pith::python
