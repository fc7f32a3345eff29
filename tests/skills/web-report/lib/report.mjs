import figures from 'berth-figures';

const [title, ...values] = process.argv.slice(2);
console.log(`<h1>${title}</h1><ul>${values.map((each) => `<li>${each}</li>`).join('')}</ul><!-- ${figures} -->`);
