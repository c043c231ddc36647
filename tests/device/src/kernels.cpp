// What a few of torch's kernels do, for results on which a program's course depends: sizes, flags and counters of integers,
// and the bytes of object collectives. They are known by their mangled names and their arguments as torch 2.12 lays them out
// (read: ATen/native/cuda/Loops.cuh, BinaryInternal.h and Reduce.cuh of the wheel, Shape.cu of the public source). All other
// kernels compute nothing.
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "device.h"

namespace {

using Run = std::function<void()>;

// The number behind a word of a mangled name; -1 if the word is not there.
int number_after(std::string_view name, std::string_view word) {
  size_t at = name.find(word);
  return at == name.npos ? -1 : atoi(name.data() + at + word.size());
}

template <typename T>
T load(const void* arguments, size_t offset = 0) {
  T value;
  memcpy(&value, static_cast<const char*>(arguments) + offset, sizeof value);
  return value;
}

// Call with a zero of the type that a letter stands for in mangled names.
template <typename Function>
Run with_type(char letter, Function function) {
  switch (letter) {
    case 'b': return function(bool{});
    case 'h': return function(uint8_t{});
    case 'a': return function(int8_t{});
    case 'i': return function(int32_t{});
    case 'l': return function(int64_t{});
    case 'f': return function(float{});
    case 'd': return function(double{});
    default: return {};
  }
}

template <typename R, typename T, typename Operator>
Run map_two(size_t count, char** data, Operator combine) {
  auto out = reinterpret_cast<R*>(data[0]);
  auto a = reinterpret_cast<const T*>(data[1]), b = reinterpret_cast<const T*>(data[2]);
  return [=] {
    for (size_t i = 0; i < count; i++) out[i] = static_cast<R>(combine(a[i], b[i]));
  };
}

template <typename R, typename T, typename Operator>
Run map_one(size_t count, char** data, Operator apply) {
  auto out = reinterpret_cast<R*>(data[0]);
  auto a = reinterpret_cast<const T*>(data[1]);
  return [=] {
    for (size_t i = 0; i < count; i++) out[i] = static_cast<R>(apply(a[i]));
  };
}

// What CompareFunctor and compare_scalar_kernel hold as 0 to 3, and CompareEqFunctor as 0 and 1.
template <typename T>
bool compare(T a, T b, bool is_equality, int how) {
  if (is_equality) return how == 0 ? a == b : a != b;
  switch (how) {
    case 0: return a >= b;
    case 1: return a > b;
    case 2: return a <= b;
    default: return a < b;
  }
}

// Two tensors, or a tensor and a number that lies behind the functor in `held`.
Run plan_compare(char letter, bool is_equality, bool with_number, size_t count, const void* held, char** data) {
  int how = load<int>(held);
  return with_type(letter, [=](auto zero) -> Run {
    using T = decltype(zero);
    if (!with_number) return map_two<bool, T>(count, data, [=](T a, T b) { return compare(a, b, is_equality, how); });
    T number = load<T>(held, sizeof(T) > 4 ? sizeof(T) : 4);
    return map_one<bool, T>(count, data, [=](T a) { return compare(a, number, is_equality, how); });
  });
}

Run plan_multiply(char letter, bool with_number, size_t count, const void* held, char** data) {
  if (letter == 'b') return {};
  return with_type(letter, [=](auto zero) -> Run {
    using T = decltype(zero);
    if (!with_number) return map_two<T, T>(count, data, [](T a, T b) { return a * b; });
    T number = load<T>(held, sizeof(T));  // behind an empty functor
    return map_one<T, T>(count, data, [=](T a) { return a * number; });
  });
}

// The letter of a c10::ScalarType.
char letter_of_type(int8_t type) {
  switch (type) {
    case 0: return 'h';
    case 1: return 'a';
    case 3: return 'i';
    case 4: return 'l';
    case 6: return 'f';
    case 7: return 'd';
    case 11: return 'b';
    default: return 0;
  }
}

// (N, functor, data, calculators, LoadWithCast, StoreWithCast): the casts begin with the types.
Run plan_convert(size_t count, char** data, void** arguments) {
  char to = letter_of_type(load<int8_t>(arguments[6])), from = letter_of_type(load<int8_t>(arguments[5]));
  return with_type(to, [=](auto r) -> Run {
    return with_type(from, [=](auto t) -> Run {
      return map_one<decltype(r), decltype(t)>(count, data, [](auto a) { return a; });
    });
  });
}

// (int N, functor, std::array<char*, operands>, ..): contiguous operands of one type.
Run plan_elementwise(std::string_view name, void** arguments) {
  auto count = static_cast<size_t>(load<int>(arguments[0]));
  const void* held = arguments[1];
  auto data = static_cast<char**>(arguments[2]);
  auto letter_of = [&](std::string_view functor) {
    size_t at = name.find(functor);
    return at == name.npos ? '\0' : name[at + functor.size()];
  };
  if (char letter = letter_of("FillFunctorI")) {
    return with_type(letter, [=](auto zero) -> Run {
      using T = decltype(zero);
      auto out = reinterpret_cast<T*>(data[0]);
      return [=, value = load<T>(held)] {
        for (size_t i = 0; i < count; i++) out[i] = value;
      };
    });
  }
  if (char letter = letter_of("CUDAFunctor_addI")) {
    return with_type(letter, [=](auto zero) -> Run {
      using T = decltype(zero);
      return map_two<T, T>(count, data, [alpha = load<T>(held)](T a, T b) { return a + alpha * b; });
    });
  }
  if (char letter = letter_of("CUDAFunctorOnSelf_addI")) {
    return with_type(letter, [=](auto zero) -> Run {
      using T = decltype(zero);
      T added = static_cast<T>(load<T>(held) * load<T>(held, sizeof(T)));
      return map_one<T, T>(count, data, [=](T a) { return a + added; });
    });
  }
  auto has = [&](std::string_view word) { return name.find(word) != name.npos; };
  bool with_number = has("BUnaryFunctorI") || has("AUnaryFunctorI");
  if (has("direct_copy_kernel") && has("LoadWithCast")) return plan_convert(count, data, arguments);
  if (char letter = letter_of("compare_scalar_kernelI")) return plan_compare(letter, false, true, count, held, data);
  if (char letter = letter_of("CompareFunctorI")) return plan_compare(letter, false, with_number, count, held, data);
  if (char letter = letter_of("CompareEqFunctorI")) return plan_compare(letter, true, with_number, count, held, data);
  if (char letter = letter_of("MulFunctorI")) return plan_multiply(letter, with_number, count, held, data);
  return {};
}

// ReduceOp: {functor, identity, ReduceConfig, two OffsetCalculators, source, destination ..}; all of a contiguous tensor into
// one number.
template <typename Operator>
Run plan_reduction(char letter, const void* reduction, Operator combine) {
  constexpr size_t kConfig = 64, kCalculators = 404 + 504;
  return with_type(letter, [=](auto zero) -> Run {
    using T = decltype(zero);
    size_t config = 2 * sizeof(T), source = (config + kConfig + kCalculators + 7) / 8 * 8;
    auto count = static_cast<size_t>(load<int>(reduction, config + 4));
    if (load<int>(reduction, config + 8) != 1) return {};  // outputs
    auto from = load<const T*>(reduction, source);
    auto to = load<T*>(reduction, source + 8);
    return [=] {
      T result = from[0];
      for (size_t i = 1; i < count; i++) result = static_cast<T>(combine(result, from[i]));
      *to = result;
    };
  });
}

// (output, {inputs[n], unsigned offsets[n], sizes[n], counts[n], ..}, strides, dimension, stride of it): joined along the first.
Run plan_cat(std::string_view name, void** arguments, unsigned inputs) {
  int element = number_after(name, "OpaqueTypeILj");
  size_t at = name.find("EEEjLi");
  if (element < 1 || at == name.npos || load<int>(arguments[3]) != 0) return {};
  auto batch = static_cast<size_t>(number_after(name.substr(name.find("ELi", at + 6)), "ELi"));
  auto out = load<char*>(arguments[0]);
  auto bytes = static_cast<size_t>(element);
  size_t stride = load<unsigned>(arguments[4]);
  struct Piece {
    char* to;
    const char* from;
    size_t bytes;
  };
  std::vector<Piece> pieces;
  for (size_t i = 0; i < inputs; i++) {
    size_t offset = load<unsigned>(arguments[1], batch * 8 + i * 4);
    size_t count = load<unsigned>(arguments[1], batch * 16 + i * 4);
    pieces.push_back({out + offset * stride * bytes, load<const char*>(arguments[1], i * 8), count * bytes});
  }
  return [=] {
    for (const Piece& piece : pieces) memmove(piece.to, piece.from, piece.bytes);
  };
}

}  // namespace

std::function<void()> plan_kernel(const char* mangled, void** arguments, Size3 grid) {
  std::string_view name(mangled);
  auto has = [&](std::string_view word) { return name.find(word) != name.npos; };
  if (has("vectorized_elementwise_kernelI") || has("unrolled_elementwise_kernelI")) return plan_elementwise(name, arguments);
  if (has("CatArrayBatchedCopy") && (has("_contigI") || has("_vectorizedI"))) return plan_cat(name, arguments, grid.y);
  if (size_t at = name.find("ReduceOpI"); at != name.npos) {
    char letter = name[at + 9];  // of the input; a sum into another type is left alone
    if (has(std::string("sum_functorI") + std::string(3, letter) + "E"))
      return plan_reduction(letter, arguments[0], [](auto a, auto b) { return a + b; });
    if (has("MaxNanFunctor")) return plan_reduction(letter, arguments[0], [](auto a, auto b) { return a < b ? b : a; });
    if (has("MinNanFunctor")) return plan_reduction(letter, arguments[0], [](auto a, auto b) { return b < a ? b : a; });
  }
  return {};
}
