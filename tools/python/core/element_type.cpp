#include "element_type.hpp"

#include <array>

#include "dlpack.hpp"

namespace pith::python {

namespace {

struct Named {
  const char* name;
  pithDataType_t type;
  std::size_t bytes;
};

// In the order of pithDataType_t.
constexpr std::array<Named, 14> names{{
    {"int8", pithInt8, 1},
    {"uint8", pithUint8, 1},
    {"int32", pithInt32, 4},
    {"uint32", pithUint32, 4},
    {"int64", pithInt64, 8},
    {"uint64", pithUint64, 8},
    {"float16", pithFloat16, 2},
    {"float32", pithFloat32, 4},
    {"float64", pithFloat64, 8},
    {"bfloat16", pithBfloat16, 2},
    {"float8_e4m3", pithFloat8e4m3, 1},
    {"float8_e5m2", pithFloat8e5m2, 1},
    {"complex64", pithComplex64, 8},
    {"complex128", pithComplex128, 16},
}};

ElementType plain(pithDataType_t type, std::size_t bytes) { return {type, bytes, 1, Sums::all}; }

ElementType opaque(std::size_t bytes) { return {pithUint8, bytes, bytes, Sums::none}; }

ElementType integer(bool is_signed, std::size_t bytes) {
  switch (bytes) {
    case 1:
      return plain(is_signed ? pithInt8 : pithUint8, 1);
    case 4:
      return plain(is_signed ? pithInt32 : pithUint32, 4);
    case 8:
      return plain(is_signed ? pithInt64 : pithUint64, 8);
    default:
      return opaque(bytes);
  }
}

ElementType floating(std::size_t bytes) {
  switch (bytes) {
    case 2:
      return plain(pithFloat16, 2);
    case 4:
      return plain(pithFloat32, 4);
    case 8:
      return plain(pithFloat64, 8);
    default:
      return opaque(bytes);
  }
}

// Pith knows no pair of float16.
ElementType complex_of(std::size_t bytes) {
  switch (bytes) {
    case 4:
      return {pithFloat16, 4, 2, Sums::linear};
    case 8:
      return {pithComplex64, 8, 1, Sums::unordered};
    case 16:
      return {pithComplex128, 16, 1, Sums::unordered};
    default:
      return opaque(bytes);
  }
}

ElementType boolean() { return {pithUint8, 1, 1, Sums::logical}; }

std::optional<ElementType> type_of_letter(char letter, std::size_t bytes) {
  switch (letter) {
    case '?':
      return boolean();
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n':
      return integer(true, bytes);
    case 'B':
    case 'c':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N':
      return integer(false, bytes);
    case 'e':
    case 'f':
    case 'd':
      return floating(bytes);
    case 'O':
    case 'P':
    case '&':
      return std::nullopt;
    default:
      return opaque(bytes);
  }
}

}  // namespace

std::optional<ElementType> type_of_format(std::string_view format, std::size_t item_bytes) {
  if (format.empty()) format = "B";
  if (format.front() == '>' || format.front() == '!') {
    if (item_bytes > 1) return std::nullopt;
    format.remove_prefix(1);
  } else if (format.front() == '<' || format.front() == '=' || format.front() == '@') {
    format.remove_prefix(1);
  }
  if (format.size() == 1) return type_of_letter(format.front(), item_bytes);
  if (format == "Zf" || format == "Zd") return complex_of(item_bytes);
  // A record: it may hold numbers in any order of bytes, but no objects.
  if (format.find('O') != format.npos && format.find("O:") != format.npos) return std::nullopt;
  return opaque(item_bytes);
}

std::optional<ElementType> type_of_dlpack(std::uint8_t code, std::uint8_t bits,
                                          std::uint16_t lanes) {
  if (lanes != 1 || bits % 8 != 0 || bits == 0) return std::nullopt;
  const std::size_t bytes = bits / 8U;
  switch (code) {
    case dl_int:
      return integer(true, bytes);
    case dl_uint:
      return integer(false, bytes);
    case dl_float:
      return floating(bytes);
    case dl_bfloat:
      return bytes == 2 ? plain(pithBfloat16, 2) : opaque(bytes);
    case dl_complex:
      return complex_of(bytes);
    case dl_bool:
      return boolean();
    case dl_float8_e4m3fn:
      return plain(pithFloat8e4m3, 1);
    case dl_float8_e5m2:
      return plain(pithFloat8e5m2, 1);
    default:
      return opaque(bytes);
  }
}

std::optional<ElementType> type_of_name(std::string_view name) {
  if (name == "float8_e4m3fn") name = "float8_e4m3";  // as PyTorch and ml_dtypes say
  if (name == "bool") return boolean();
  for (const Named& one : names) {
    if (name != one.name) continue;
    return one.type < pithComplex64 ? plain(one.type, one.bytes) : complex_of(one.bytes);
  }
  return std::nullopt;
}

ElementType in_reals(const ElementType& type) {
  if (type.sums != Sums::unordered) return type;
  return {floating(type.item_bytes / 2).type, type.item_bytes, 2, Sums::linear};
}

std::string type_names() {
  std::string all;
  for (const Named& one : names) all += (all.empty() ? "" : ", ") + std::string(one.name);
  return all;
}

std::string text_of(const ElementType& type) {
  switch (type.sums) {
    case Sums::all:
    case Sums::unordered:
      return name_of(type.type);
    case Sums::linear:
      return std::string("complex of ") + name_of(type.type);
    case Sums::logical:
      return "bool";
    case Sums::none:
      break;
  }
  return std::to_string(type.item_bytes) + " bytes of another type";
}

const char* name_of(pithDataType_t type) { return names[static_cast<std::size_t>(type)].name; }

}  // namespace pith::python
