// An array that a caller passed: where its elements are, without a copy. Taken by the buffer
// protocol, or else by DLPack, or else by __array_interface__. Holds the array's memory for as long
// as it lives.
//
// All functions need the GIL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "element_type.hpp"
#include "nanobind/nanobind.h"

namespace pith::python {

namespace nb = nanobind;

// How a call uses an array.
enum class Access { read, write };

class ArrayArgument {
 public:
  ArrayArgument() = default;
  // `argument`: its name in messages. `dtype`: how to read the elements, or None. `stream`: the
  // CUDA stream of the call, which waits for what the array's own library does. `reals`: complex
  // numbers are taken as pairs of floats. Raises if the array cannot be used as it is.
  ArrayArgument(const char* argument, nb::handle array, Access access,
                nb::handle dtype = nb::none(), std::uintptr_t stream = 0, bool reals = false);
  ~ArrayArgument() { release(); }
  ArrayArgument(ArrayArgument&& other) noexcept { *this = std::move(other); }
  ArrayArgument& operator=(ArrayArgument&& other) noexcept;

  void* data() const { return data_; }
  // As the array counts them; an item may be several elements of the type.
  std::size_t items() const { return items_; }
  const ElementType& type() const { return type_; }
  std::size_t bytes() const { return items_ * type_.item_bytes; }
  bool on_device() const { return on_device_; }
  std::span<const std::int64_t> shape() const { return {shape_, dimensions_}; }

 private:
  static constexpr std::size_t most_dimensions = 64;
  enum class Source { none, buffer, tensor, versioned_tensor, object };

  bool take_buffer(const char* argument, nb::handle array, Access access);
  void take_interface(const char* argument, nb::handle array, const nb::dict& interface,
                      Access access);
  void take_dlpack(const char* argument, nb::handle array, Access access, std::uintptr_t stream);
  template <class Managed>
  void take_tensor(const char* argument, const nb::object& capsule, Managed* managed,
                   Access access);
  void read_as(const char* argument, nb::handle dtype);
  void add_dimension(const char* argument, std::int64_t extent);
  void release() noexcept;

  void* data_ = nullptr;
  std::size_t items_ = 1;
  ElementType type_ = {};
  bool on_device_ = false;
  Source source_ = Source::none;
  std::size_t dimensions_ = 0;
  void* managed_ = nullptr;  // by `source_`
  Py_buffer view_;
  std::int64_t shape_[most_dimensions];
};

// "(2, 3)", as Python writes a shape.
std::string text_of(std::span<const std::int64_t> shape);

}  // namespace pith::python
