#include "crypto/libcrypto.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

namespace pith {
namespace {

// The functions above are the same in both.
constexpr const char* sonames[] = {"libcrypto.so.3", "libcrypto.so.1.1"};

void* open(Error& why_not) {
  std::string faults;
  for (const char* soname : sonames) {
    void* const library = dlopen(soname, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library) return library;
    faults += fmt::format("{}{}", faults.empty() ? "" : "; ", dlerror());
  }
  why_not = Error(Code::system, fmt::format("OpenSSL's libcrypto cannot be loaded: {}", faults));
  return nullptr;
}

template <class Function>
void find(void* library, Function& function, const char* name, Error& why_not) {
  if (why_not) return;
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function) why_not = Error(Code::system, fmt::format("libcrypto has no function {}", name));
}

Libcrypto load() {
  Libcrypto crypto;
  void* const library = open(crypto.why_not);
  find(library, crypto.context_new, "EVP_CIPHER_CTX_new", crypto.why_not);
  find(library, crypto.context_free, "EVP_CIPHER_CTX_free", crypto.why_not);
  find(library, crypto.control, "EVP_CIPHER_CTX_ctrl", crypto.why_not);
  find(library, crypto.aes_256_gcm, "EVP_aes_256_gcm", crypto.why_not);
  find(library, crypto.init, "EVP_CipherInit_ex", crypto.why_not);
  find(library, crypto.update, "EVP_CipherUpdate", crypto.why_not);
  find(library, crypto.finish, "EVP_CipherFinal_ex", crypto.why_not);
  return crypto;
}

}  // namespace

const Libcrypto& libcrypto() {
  static const Libcrypto library = load();
  return library;
}

}  // namespace pith
