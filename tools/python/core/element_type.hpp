// The types of array elements, as the buffer protocol, DLPack and the users of Pith name them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "pith/pith.h"

namespace pith::python {

// What a type can be used for, besides being moved.
enum class Sums {
  all,        // every operation
  unordered,  // sum, avg and prod: complex numbers
  linear,     // sum and avg: complex numbers as pairs of floats
  logical,    // max, min, and those of bits and truth values: booleans
  none,       // a type that Pith does not know, moved as bytes
};

struct ElementType {
  pithDataType_t type = pithUint8;
  std::size_t item_bytes = 1;
  std::size_t per_item = 1;  // elements of `type` in an item of the array
  Sums sums = Sums::all;
};

// Of a format of Python's struct module, with items of this size. Empty: objects or pointers, or
// bytes in an order that is not this machine's.
std::optional<ElementType> type_of_format(std::string_view format, std::size_t item_bytes);
// Of DLPack's code and size. Empty: several lanes, or items that are not whole bytes.
std::optional<ElementType> type_of_dlpack(std::uint8_t code, std::uint8_t bits,
                                          std::uint16_t lanes);
// Of a name, as "float32" or "bfloat16".
std::optional<ElementType> type_of_name(std::string_view name);
// Complex numbers as pairs of floats; other types as they are.
ElementType in_reals(const ElementType& type);
// All names, for messages.
std::string type_names();
const char* name_of(pithDataType_t type);
// "float32", or what an array's type is to Pith where it is none of these.
std::string text_of(const ElementType& type);

}  // namespace pith::python
