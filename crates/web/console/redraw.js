// The page asks the frame to draw it again, without knowing the frame.

let call = () => {};

export const onRedraw = (draw) => {
  call = draw;
};
export const redraw = () => call();
