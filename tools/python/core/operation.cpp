#include "operation.hpp"

#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "errors.hpp"

namespace pith::python {

namespace {

constexpr std::array<const char*, pithNumOps> names{"sum", "prod", "max",  "min", "avg", "band",
                                                    "bor", "bxor", "land", "lor", "lxor"};

[[noreturn]] void refuse_op(nb::handle op) {
  refuse("op is " + nb::cast<std::string>(nb::repr(op)) +
         ", expected 'sum', 'prod', 'max', 'min', 'avg', 'band', 'bor', 'bxor', 'land', 'lor', "
         "'lxor' or a pith.PreMulSum");
}

pithRedOp_t op_of_name(nb::handle op) {
  Py_ssize_t length = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(op.ptr(), &length);
  if (!text) throw nb::python_error();
  const std::string_view name(text, static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (name == names[i]) return static_cast<pithRedOp_t>(i);
  }
  refuse_op(op);
}

void check_defined(pithRedOp_t op, const ElementType& type) {
  const bool is_linear = op == pithSum || op == pithAvg || op >= pithNumOps;
  const bool is_of_bits = op >= pithBand && op < pithNumOps;
  const std::string name = op < pithNumOps ? names[static_cast<std::size_t>(op)] : "PreMulSum";
  switch (type.sums) {
    case Sums::all:
      if (!is_of_bits || type.type < pithFloat16) return;
      refuse(std::string("x is ") + name_of(type.type) + ", for which " + name +
             " is not defined, expected integers or booleans");
    case Sums::unordered:
      if (is_linear || op == pithProd) return;
      refuse("x is complex, for which " + name + " is not defined");
    case Sums::linear:
      if (!is_linear) refuse("x is complex, for which " + name + " is not defined");
      return;
    case Sums::logical:
      if (op == pithMax || op == pithMin || is_of_bits) return;
      refuse("x is boolean, for which " + name +
             " is not defined, expected land (or min), lor (or max) or lxor");
    case Sums::none:
      refuse("x has elements of " + std::to_string(type.item_bytes) +
             " bytes of a type that can only be moved, expected one of " + type_names());
  }
}

// The scalar in the bits of a type, as Python's struct module packs it.
nb::bytes pack(nb::handle scalar, pithDataType_t type) {
  constexpr const char* formats = "bBiIqQefd";
  const nb::object packer = nb::module_::import_("struct").attr("pack");
  if (type == pithBfloat16) {
    // Rounded to nearest, ties to even; struct knows no bfloat16.
    const auto bits = nb::cast<nb::bytes>(packer("<f", scalar));
    std::uint32_t value = 0;
    std::memcpy(&value, bits.c_str(), sizeof value);
    value += 0x7fff + (value >> 16 & 1);
    const auto half = static_cast<std::uint16_t>(value >> 16);
    return nb::bytes(&half, sizeof half);
  }
  if (type == pithComplex64 || type == pithComplex128) {
    const nb::object number = nb::module_::import_("builtins").attr("complex")(scalar);
    const char* const parts = type == pithComplex64 ? "<ff" : "<dd";
    return nb::cast<nb::bytes>(packer(parts, number.attr("real"), number.attr("imag")));
  }
  if (type > pithFloat64) {
    refuse(std::string("op is a PreMulSum, which is not available for ") + name_of(type));
  }
  const char format[] = {'<', formats[type], 0};
  return nb::cast<nb::bytes>(packer(format, scalar));
}

}  // namespace

Operation::Operation(nb::handle op, const ElementType& type, pithComm_t comm) {
  if (PyUnicode_Check(op.ptr())) {
    op_ = op_of_name(op);
    check_defined(op_, type);
    return;
  }
  PreMulSum* given = nullptr;
  if (!nb::try_cast(op, given) || !given) refuse_op(op);
  check_defined(pithNumOps, type);
  make(*given, type.type, comm);
}

void Operation::make(const PreMulSum& op, pithDataType_t type, pithComm_t comm) {
  nb::bytes scalar;
  try {
    scalar = pack(op.scalar, type);
  } catch (nb::python_error& error) {
    if (error.matches(PyExc_ValueError)) throw;
    refuse("op has the scalar " + nb::cast<std::string>(nb::repr(op.scalar)) +
           ", which is no number of type " + name_of(type));
  }
  check(pithRedOpCreatePreMulSum(&op_, const_cast<char*>(scalar.c_str()), type,
                                 pithScalarHostImmediate, comm));
  made_for_ = comm;
}

// A call keeps what it needs of it.
Operation::~Operation() {
  if (made_for_) pithRedOpDestroy(op_, made_for_);
}

void add_operation(nb::module_& module) {
  nb::class_<PreMulSum>(module, "PreMulSum")
      .def(nb::init<nb::object>(), nb::arg("scalar"))
      .def_ro("scalar", &PreMulSum::scalar)
      .def("__repr__", [](const PreMulSum& self) {
        return nb::str("pith.PreMulSum({!r})").format(self.scalar);
      });
}

}  // namespace pith::python
