#include "result_array.hpp"

#include <algorithm>
#include <cstddef>
#include <string>

#include "errors.hpp"

namespace pith::python {

namespace {

using Extents = std::span<const std::int64_t>;

Extents without_leading_one(Extents shape) {
  return !shape.empty() && shape.front() == 1 ? shape.subspan(1) : shape;
}

// Whether `one` has the first two axes of `other` as a single axis.
bool joins_axes_of(Extents one, Extents other) {
  return other.size() >= 2 && one.size() + 1 == other.size() && one[0] == other[0] * other[1] &&
         std::ranges::equal(one.subspan(1), other.subspan(2));
}

// The same elements in the same order, as far as a caller could mean that. Precondition: both have
// the same number of items.
bool fits(Extents given, Extents wanted) {
  return given.size() == 1 || joins_axes_of(given, wanted) ||
         std::ranges::equal(without_leading_one(given), without_leading_one(wanted));
}

// pith.arrays.empty_like, kept for good. The GIL guards it, not the lock of a function's static
// variable: the import lets the GIL go, and a thread that got it would wait for that lock with it.
PyObject* kept_empty_like = nullptr;

nb::handle empty_like() {
  if (!kept_empty_like) {
    nb::object found = nb::module_::import_("pith.arrays").attr("empty_like");
    if (!kept_empty_like) kept_empty_like = found.release().ptr();
  }
  return kept_empty_like;
}

nb::object new_array(nb::handle x, Extents shape, bool same) {
  if (same) return empty_like()(x);
  nb::list extents;
  for (const std::int64_t extent : shape) extents.append(extent);
  return empty_like()(x, nb::tuple(extents));
}

}  // namespace

ResultArray result_array(nb::handle x, const ArrayArgument& input, nb::handle out, Extents shape,
                         nb::handle dtype, std::uintptr_t stream, bool reals) {
  const bool same = shape.data() == input.shape().data();
  nb::object object = out.is_none() ? new_array(x, shape, same) : nb::borrow(out);
  ArrayArgument array("out", object, Access::write, dtype, stream, reals);
  const ElementType& type = array.type();
  const ElementType& wanted = input.type();
  if (type.type != wanted.type || type.item_bytes != wanted.item_bytes ||
      type.sums != wanted.sums) {
    refuse("out has elements of " + text_of(type) + ", expected " + text_of(wanted) + " as x has");
  }
  std::size_t items = 1;
  for (const std::int64_t extent : shape) items *= static_cast<std::size_t>(extent);
  if (array.items() != items || !fits(array.shape(), shape)) {
    refuse("out has shape " + text_of(array.shape()) + ", expected " + text_of(shape));
  }
  if (array.on_device() != input.on_device()) {
    refuse(std::string("out is ") + (array.on_device() ? "on a device" : "in host memory") +
           ", expected memory as that of x");
  }
  return {std::move(object), std::move(array)};
}

void check_overlap(const ArrayArgument& part, const ArrayArgument& whole, std::size_t offset) {
  const auto* const first = static_cast<const std::byte*>(part.data());
  const auto* const second = static_cast<const std::byte*>(whole.data());
  if (part.bytes() == 0 || whole.bytes() == 0) return;
  const bool apart = first + part.bytes() <= second || second + whole.bytes() <= first;
  if (apart || first == second + offset) return;
  refuse(
      "x and out overlap, expected arrays that are apart, or x and out as an in-place call has "
      "them");
}

Shape stacked(Extents shape, int ranks) {
  Shape all{ranks};
  all.insert(all.end(), shape.begin(), shape.end());
  return all;
}

Shape cut(const char* argument, Extents shape, int ranks) {
  if (shape.empty() || shape.front() % ranks != 0) {
    refuse(std::string(argument) + " has shape " + text_of(shape) +
           ", expected a first axis that " + std::to_string(ranks) + " ranks can share equally");
  }
  Shape part(shape.begin(), shape.end());
  part.front() /= ranks;
  return part;
}

}  // namespace pith::python
