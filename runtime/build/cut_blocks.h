#pragma once
// Long straight-line code, cut for the code generator.
//
// A step of thousands of operations is one basic block, and what LLVM does with a block (its selection graph, the
// scheduler, live ranges) takes time that grows with the square of its length or worse: a sum of 900 cubes took 3.5 s,
// one of 1,800 took 14. Here such a block becomes a chain of short ones, which are passed in order. What one of them
// makes and another reads goes through the stack, where an allocator of registers would have put most of it anyway;
// places on the stack are used again when nobody reads them any more.
//
// Follows LLVM's passes and precedes its code generator. Values do not change: no operation is moved or replaced.
// Functions whose blocks are short stay as they are.
#include <cstddef>

namespace llvm {
class Module;
}  // namespace llvm

namespace cellc {

struct BlockLimits {
  std::size_t longest = 1200;  ///< instructions of a block that stays whole
  std::size_t piece = 250;     ///< instructions of a piece, but for what it loads and stores
};

void cut_blocks(llvm::Module& module, const BlockLimits& limits = {});

/// Our own functions (exp, tanh, …) are inlined, unless all copies of one in this module were more instructions than
/// this: then it is called. A chain of 6,000 sigmoids was 120,000 instructions.
inline constexpr std::size_t kMostInlined = 20'000;
void call_what_is_long(llvm::Module& module, std::size_t most = kMostInlined);

}  // namespace cellc
